// Sets the colours before the first paint. Not a module: modules run after it.
(() => {
  const chosen = localStorage.getItem("holdfast-theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
