"""Addresses are shown without the user and the password that they may hold."""

import pytest

from configs.addresses import holds_user, without_user


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("http://me:secret@mlflow:5000", "http://mlflow:5000"),
        ("https://token@mlflow/path?a=b", "https://mlflow/path?a=b"),
        ("postgresql+psycopg2://me:secret%40home@db/mlflow", "postgresql+psycopg2://db/mlflow"),
        ("http://me:a@home@mlflow", "http://mlflow"),
        ("http://:secret@[::1]:5000", "http://[::1]:5000"),
    ],
)
def test_an_address_loses_user_and_password(address: str, shown: str) -> None:
    assert holds_user(address)
    assert without_user(address) == shown
    assert not holds_user(shown)


@pytest.mark.parametrize(
    "address", ["http://mlflow:5000", "sqlite:////home/me/mlflow.db", "http://hub/owner@v1", "me@home", "data/*.jsonl"]
)
def test_an_address_without_them_stays_as_it_is(address: str) -> None:
    assert not holds_user(address)
    assert without_user(address) == address


def test_every_address_of_a_text_loses_them() -> None:
    text = """no answer from 'http://me:secret@one:1/api', nor "ftp://me:secret@two"; ask x@y.z"""

    assert without_user(text) == """no answer from 'http://one:1/api', nor "ftp://two"; ask x@y.z"""
