// Sets the colours before the first paint, and loads the console after it. Not a module: those run later.
{
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;

  const { root, scripts } = document.currentScript.dataset;
  const load = () => {
    for (const script of scripts.split(" ")) {
      document.head.append(Object.assign(document.createElement("link"), { rel: "modulepreload", href: root + script }));
    }
    document.head.append(Object.assign(document.createElement("script"), { type: "module", src: `${root}app.js` }));
  };
  // A hidden window paints nothing.
  if (document.visibilityState === "hidden") load();
  else requestAnimationFrame(() => setTimeout(load));
}
