"""What is a secret: each form with random ones, and ordinary text that only looks similar."""

from __future__ import annotations

import random
import string

import pytest

from index.workspace import file_filter, secrets
from tests.support.planted_secrets import NAMES, chars, planted_secrets

SEEDS = 3


@pytest.mark.parametrize("seed", range(SEEDS))
def test_secrets_are_found(seed: int) -> None:
    plants = [plant for plant in planted_secrets(seed) if plant.path not in NAMES]
    missed = {plant.path for plant in plants if not secrets.find_secret(plant.data)}
    assert len(plants) > 140 and missed == set()


def test_a_static_key_of_openvpn_is_found() -> None:
    body = [chars(random.Random(1), string.hexdigits.lower(), 32) for _ in range(16)]
    mark = "OpenVPN Static key V1-----"
    text = "\n".join(["<tls-auth>", f"-----BEGIN {mark}", *body, f"-----END {mark}", "</tls-auth>"])
    assert secrets.find_secret(text.encode()) == "a private key in line 2"


@pytest.mark.full
def test_one_random_secret_in_a_thousand_is_missed_at_most() -> None:
    """A generated token may look like words by chance."""
    found = [
        secrets.find_secret(plant.data)
        for seed in range(SEEDS, 100)
        for plant in planted_secrets(seed)
        if plant.path not in NAMES
    ]
    assert len(found) > 10_000 and found.count(None) <= len(found) / 1000


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_secret_is_found_anywhere_in_a_text(seed: int) -> None:
    draw = random.Random(seed)
    token = f"token = 'ghp_{chars(draw, string.ascii_letters + string.digits, 36)}'"
    lines = ["x = 1  # \u4e16"] * 500
    lines.insert(draw.randrange(500), token)
    line = lines.index(token) + 1
    for text in ("\n".join(lines), "\ufeff" + "\r\n".join(lines)):
        assert secrets.find_secret(text.encode()) == f"an assigned password or key in line {line}"


ORDINARY = (
    'password = "changeme"',
    "PASSWORD=your-password-here",
    "password: ${DB_PASSWORD}",
    'password = os.environ["DB_PASSWORD1"]',
    'password="{{ vault.password1 }}"',
    "password = get_password(user1, 'x')",
    "password_file = '/run/keys/password_2024'",
    "secretName: web-tls-2024",
    "token = tokenizer.encode(text)[0]",
    'pad_token = "<|endoftext|>"',
    '"special_tokens_map_file": "special_tokens_map_v2.json"',
    'tokenizer = AutoTokenizer.from_pretrained("org/model-2.5b-it-v0.1")',
    "TOKEN=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
    "api_key = 'sk-...'",
    "api_key='YOUR_API_KEY_12345678'",
    "AWS_ACCESS_KEY_ID=AKIA" + "IOSFODNN7" + "EXAMPLE",
    "ghp_" + "x" * 36,
    "sk-learn-contrib-estimators-v2",
    "postgresql://user:password@localhost/db",
    "https://{user}:{password}@{host}/",
    "redis://:${REDIS_PASSWORD}@redis:6379",
    "http://user:pa55word1@example.com/",
    'if data.startswith("-----BEGIN RSA PRIVATE KEY-----"):',
    "-----BEGIN PRIVATE KEY-----\n...\n-----END PRIVATE KEY-----",
    "-----BEGIN PUBLIC KEY-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA7Zq\n",
    "A private key begins with -----BEGIN PRIVATE KEY----- and ends with another line.",
    'publicKeyToken="1fc8b3b9a1e18e3b"',
    "kind: Secret\nmetadata:\n  name: x\n",
    "curl -u user:password http://localhost/",
    "first_pass = second_pass1(a) if compass else passive2x(b)",
    "class TokenClassification2(nn.Module): pass",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
)


def test_ordinary_text_is_no_secret() -> None:
    assert not [text for text in ORDINARY if secrets.find_secret(text.encode())]


@pytest.mark.parametrize("text", ["password = 'aaaaaaaa' ", "://a:b@", "kind: Secret\ndata:\n"])
def test_a_text_with_too_many_candidates_is_not_judged_to_the_end(text: str) -> None:
    whole = text.encode() * (secrets.MAX_CANDIDATES + 1)
    assert secrets.find_secret(whole) == "too many passwords and keys to judge"
    assert secrets.find_secret(text.encode() * 100) is None


def test_names_of_secrets() -> None:
    assert [name for name in NAMES if file_filter.is_secret_path(f"/home/me/{name}")] == [*NAMES]


ORDINARY_NAMES = [
    "environment.py", "env.py", "vite-env.d.ts", "keys.py", "credentials.py", "secrets.py",
    "password_validation.py", "PasswordForm.tsx", "test_tokens.go", "token.h", "tokens.json",
    "tokenizer.json", "special_tokens_map.json", "tokenizer_config.json", "history.py",
    "hosts.yml", "config.yml", "settings.xml", "service.py", "account.json", "auth.py",
    "passwords.md", "secret-sharing.rst", "kube.go", "package.json", "Dockerfile", "Makefile",
]  # fmt: skip


def test_names_of_ordinary_files() -> None:
    found = [name for name in ORDINARY_NAMES if file_filter.is_secret_path(f"/home/me/src/{name}")]
    assert not found
