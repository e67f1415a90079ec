"""A Django project in one file: four workers of gunicorn keep sessions and a cache in one SQLite file.

    pip install 'holdfast-kv[django]' gunicorn
    gunicorn --pythonpath examples/workers --workers 4 django_shop:application
    curl -c jar -b jar http://127.0.0.1:8000/buy/rope

Each call of the last line adds to the visitor's basket, whichever worker answers, and prints such as

    {"basket": {"rope": 2}, "price": 12, "sold": 2, "worker": 4711}

A worker opens the file when it first needs it, so nothing is open when gunicorn forks, with or without its
option `--preload`. `HOLDFAST_URL` names another store, `django_shop.db` in this folder if it is not set.
"""

import os
import time

import django
from django.conf import settings
from django.core.cache import cache
from django.core.handlers.wsgi import WSGIHandler
from django.http import HttpRequest, JsonResponse
from django.urls import path

URL = os.environ.get("HOLDFAST_URL", "django_shop.db")
PRICES = {"rope": 12, "lamp": 30}


def price_of(article: str) -> int:
    """Look a price up, which stands for something slow."""
    time.sleep(0.05)
    return PRICES[article]


def buy(request: HttpRequest, article: str) -> JsonResponse:
    """Put an article into the visitor's basket, and count what all visitors have bought."""
    basket = request.session.setdefault("basket", {})
    basket[article] = basket.get(article, 0) + 1
    request.session.modified = True
    price = cache.get_or_set(f"price:{article}", lambda: price_of(article), timeout=60)
    cache.add("sold", 0, timeout=None)  # by one of those who try at the same time
    sold = cache.incr("sold")  # one step in the store: no purchase is lost
    return JsonResponse({"basket": basket, "price": price, "sold": sold, "worker": os.getpid()})


settings.configure(
    ALLOWED_HOSTS=["127.0.0.1", "localhost"],
    CACHES={
        "default": {
            "BACKEND": "holdfast.integrations.django.HoldfastCache",
            "LOCATION": URL,
            "OPTIONS": {"plugin": "shop-cache"},
        }
    },
    HOLDFAST_SESSION_PLUGIN="shop-sessions",
    HOLDFAST_SESSION_URL=URL,
    MIDDLEWARE=["django.contrib.sessions.middleware.SessionMiddleware"],
    ROOT_URLCONF=(path("buy/<article>", buy),),
    SECRET_KEY=os.environ.get("SECRET_KEY", "all workers need the same one"),
    SESSION_ENGINE="holdfast.integrations.django.sessions",
)
django.setup()
application = WSGIHandler()
