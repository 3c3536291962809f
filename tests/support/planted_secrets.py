"""Files with random secrets in them, made anew for each seed so that no scanner finds one here."""

from __future__ import annotations

import base64
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random

ALPHANUMERIC = string.ascii_letters + string.digits
HEX = "0123456789abcdef"
BASE32 = string.ascii_uppercase + "234567"
BASE64 = ALPHANUMERIC + "+/"
URL_SAFE = ALPHANUMERIC + "-_"


@dataclass(frozen=True, slots=True)
class Plant:
    """A file, and the secret in it."""

    path: str
    data: bytes
    secret: str


def planted_secrets(seed: int) -> list[Plant]:
    """One file for each name and form."""
    random = Random(seed)
    return [*_names(random), *_keys(random), *_tokens(random), *_values(random)]


def chars(random: Random, alphabet: str, count: int) -> str:
    """Random characters."""
    return "".join(random.choices(alphabet, k=count))


# -- names -------------------------------------------------------------------------------------

# fmt: off
NAMES = (
    ".env", ".env.local", "prod.env", "deploy/staging.env", "app.env.production", ".envrc",
    "infra/terraform.tfstate", "infra/terraform.tfstate.backup", "infra/prod.tfvars",
    "infra/prod.auto.tfvars", "infra/x.tfvars.json", "terraform.rc", ".terraformrc",
    "service-account.json", "my-service-account-prod.json", "service_account_key.json",
    "application_default_credentials.json", "gcloud/application_default_credentials.json",
    "gcloud/credentials.db", "gh/hosts.yml", "glab-cli/config.yml", "kubeconfig", "prod.kubeconfig",
    "kubeconfig.yaml", ".dockercfg", ".dockerconfigjson", "secrets.yml", "secrets.yaml",
    "config/secrets.json", "secrets.toml", "app-secrets.properties", "secret.yaml", ".secrets",
    "SECRETS.YML", ".vault-token", ".vault_pass", "vault_pass.txt", ".my.cnf", ".mylogin.cnf",
    ".s3cfg", ".boto", ".passwd-s3fs", ".npmrc", ".yarnrc", ".yarnrc.yml", ".pnpmrc", "pip.conf",
    "pip.ini", ".pypirc", "auth.json", "containers/auth.json", "AuthKey_AB12.p8", "server.pem",
    "tls.key", "store.p12", "store.pfx", "release.jks", "debug.keystore", "putty.ppk", "db.kdbx",
    "wg0.conf", "etc/wireguard/wg1.conf", "client.ovpn", "home.nmconnection", "wpa_supplicant.conf",
    "id_rsa", "id_ed25519", "id_ecdsa_sk", "deploy_rsa", "keys/github_ed25519", ".ssh/config",
    ".aws/config", ".kube/config", ".docker/config.json", ".gnupg/private", ".azure/profile",
    ".bash_history", ".zsh_history", ".python_history", ".psql_history", ".mysql_history",
    ".sqlite_history", ".node_repl_history", ".irb_history", ".rediscli_history", ".histfile",
    "fish/fish_history", "ConsoleHost_history.txt", ".Rhistory", ".lesshst", ".viminfo",
    ".netrc", "_netrc", ".authinfo", ".git-credentials", ".gitcookies", ".pgpass", "pgpass.conf",
    ".htpasswd", "credentials", "credentials.json", "aws-credentials.csv", "rootkey.csv",
    "accessKeys.csv", "api_keys.txt", "passwords.txt", "password.csv", "rclone.conf", "ngrok.yml",
    "kaggle.json", ".databrickscfg", "huggingface/token", "access_token", "refresh-token.json",
    "recovery-codes.txt", "cookies.txt", "sftp-config.json", ".m2/settings.xml", "krb5.keytab",
    "ipsec.secrets", "master.key", "openrc", "clouds.yaml", "x-firebase-adminsdk-y.json",
    ".netrc.bak", "secrets.yml~", "prod.env.old", "id_rsa.bak", ".renviron", ".dev.vars",
)
# fmt: on


def _names(random: Random) -> Iterator[Plant]:
    """Secrets that only the name of the file gives away."""
    for name in NAMES:
        word = "canary " + chars(random, string.ascii_lowercase, 12)
        yield Plant(name, f"line one\n{word}\n".encode(), word)


# -- private keys ------------------------------------------------------------------------------

KEY_KINDS = ("", "RSA ", "EC ", "DSA ", "OPENSSH ", "ENCRYPTED ", "PGP ")


def _keys(random: Random) -> Iterator[Plant]:
    forms: tuple[Callable[[list[str]], str], ...] = (
        "\n".join,
        lambda lines: "\n\n" + "\n".join(lines),
        lambda lines: "\ufeff" + "\n".join(lines),
        lambda lines: "\ufeff\r\n" + "\r\n".join(lines),
        lambda lines: "\r".join(["", *lines]),
        lambda lines: CERTIFICATE + "\n".join(lines),
        lambda lines: "deploy:\n  key: |\n" + "".join(f"    {line}\n" for line in lines),
        lambda lines: '{"private_key": "' + "\\n".join(lines) + '"}',
        lambda lines: "KEY = (\n" + "".join(f'    "{line}\\n"\n' for line in lines) + ")\n",
        lambda lines: 'KEY="' + "\\n".join(lines) + '"\n',
        lambda lines: "".join(f"# {line}\n" for line in lines),
        lambda lines: "@@ -0,0 +1 @@\n" + "".join(f"+{line}\n" for line in lines),
        lambda lines: "client-key-data: " + _base64("\n".join(lines)) + "\n",
        lambda lines: "# Notes \u00e9\u4e16\n\nThe key:\n\n```\n" + "\n".join(lines) + "\n```\n",
        lambda lines: "x = 1\n" * 9000 + "\n".join(lines),
    )
    for number, form in enumerate(forms):
        for kind in random.sample(KEY_KINDS, 2):
            block = " BLOCK" if kind.startswith("PGP") else ""
            marks = [f"-----{word} {kind}PRIVATE KEY{block}-----" for word in ("BEGIN", "END")]
            body = [chars(random, BASE64, 64) for _ in range(12)]
            text = form([marks[0], *body, marks[1]])
            secret = body[5] if body[5] in text else _base64("\n".join([marks[0], *body]))[99:130]
            yield Plant(f"keys/{number}{kind.strip()}.txt", text.encode(), secret)


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


CERTIFICATE = "\n".join(
    ["-----BEGIN CERTIFICATE-----", "MIIB" * 16, "-----END CERTIFICATE-----", ""]
)


# -- access tokens -----------------------------------------------------------------------------

TOKENS = {  # by issuer: (start, alphabet, characters that follow), or several of them joined
    "aws": (("AKIA", BASE32, 16),),
    "aws session": (("ASIA", BASE32, 16),),
    "github": (("ghp_", ALPHANUMERIC, 36),),
    "github app": (("ghs_", ALPHANUMERIC, 36),),
    "github fine": (("github_pat_", ALPHANUMERIC, 22), ("_", ALPHANUMERIC, 59)),
    "gitlab": (("glpat-", URL_SAFE, 20),),
    "slack": (("xoxb-", string.digits, 12), ("-", string.digits, 12), ("-", ALPHANUMERIC, 24)),
    "slack app": (("xapp-1-A", BASE32, 10), ("-", string.digits, 13), ("-", HEX, 64)),
    "slack hook": (
        ("https://hooks.slack.com/services/T", BASE32, 10), ("/B", BASE32, 10),
        ("/", ALPHANUMERIC, 24),
    ),
    "discord hook": (
        ("https://discord.com/api/webhooks/", string.digits, 18), ("/", URL_SAFE, 68),
    ),
    "telegram": (("", "123456789", 9), (":AA", URL_SAFE, 33)),
    "stripe": (("sk_live_", ALPHANUMERIC, 24),),
    "stripe restricted": (("rk_live_", ALPHANUMERIC, 24),),
    "google": (("AIza", URL_SAFE, 35),),
    "google oauth": (("GOCSPX-", URL_SAFE, 28),),
    "google access": (("ya29.", URL_SAFE, 60),),
    "azure storage": (
        ("DefaultEndpointsProtocol=https;AccountName=x;AccountKey=", BASE64, 86), ("==", "", 0),
    ),
    "azure bus": (("SharedAccessKeyName=root;SharedAccessKey=", BASE64, 43), ("=", "", 0)),
    "azure sas": (("https://x.blob.core.windows.net/c?sig=", ALPHANUMERIC, 43), ("%3D", "", 0)),
    "npm": (("npm_", ALPHANUMERIC, 36),),
    "pypi": (("pypi-AgEIcHlwaS5vcmc", URL_SAFE, 80),),
    "openai": (("sk-proj-", ALPHANUMERIC, 48),),
    "openai old": (("sk-", ALPHANUMERIC, 48),),
    "anthropic": (("sk-ant-api03-", URL_SAFE, 93), ("AA", "", 0)),
    "hugging face": (("hf_", string.ascii_letters, 34),),
    "sendgrid": (("SG.", URL_SAFE, 22), (".", URL_SAFE, 43)),
    "mailgun": (("key-", HEX, 32),),
    "twilio": (("SK", HEX, 32),),
    "digitalocean": (("dop_v1_", HEX, 64),),
    "shopify": (("shpat_", HEX, 32),),
    "databricks": (("dapi", HEX, 32),),
    "vault": (("hvs.", URL_SAFE, 90),),
    "docker": (("dckr_pat_", URL_SAFE, 27),),
    "terraform": (("", ALPHANUMERIC, 14), (".atlasv1.", ALPHANUMERIC, 67)),
    "grafana": (("glsa_", ALPHANUMERIC, 32), ("_", HEX, 8)),
    "atlassian": (("ATATT3xFfGF0", URL_SAFE, 170),),
    "jwt": (
        ("eyJhbGciOiJIUzI1NiJ9.eyJ", ALPHANUMERIC, 40), (".", URL_SAFE, 43),
    ),
    "age": (("AGE-SECRET-KEY-1", BASE32, 58),),
}  # fmt: skip
TOKEN_FORMS = {
    "py": 'import api\n\nclient = api.Client("{}")\n',
    "js": "const client = connect('{}'); // TODO\n",
    "json": '{{\n  "name": "x",\n  "value": "{}"\n}}\n',
    "yaml": "- name: x\r\n  with: {}\r\n",
    "sh": "#!/bin/sh\nexport X={}\ncurl https://x.org\n",
    "md": "\ufeff# Notes\n\nUse `{}` for now.\n",
    "log": "12:00 \u00e9\u4e16 sent {} to host\n",
    "toml": "x = '{}'",
}


def _tokens(random: Random) -> Iterator[Plant]:
    """Access tokens in files that say nothing else about them."""
    for issuer, parts in TOKENS.items():
        for form in random.sample(sorted(TOKEN_FORMS), 2):
            token = "".join(
                start + chars(random, alphabet, count) for start, alphabet, count in parts
            )
            text = TOKEN_FORMS[form].format(token)
            yield Plant(f"tokens/{issuer}.{form}", text.encode(), token)


# -- passwords and keys ------------------------------------------------------------------------


def _password(random: Random) -> str:
    """As people and generators choose them: letters, digits, and sometimes a sign."""
    word = chars(random, string.ascii_lowercase, 6).capitalize()
    return word + chars(random, string.digits, 3) + random.choice("!-_@x") + chars(random, HEX, 4)


# `{p}` is a password, `{r}` 40 random characters.
VALUES = (
    ('DB_PASSWORD = "{p}"\n', "py"),
    ("password: {p}\n", "yml"),
    ("db:\n  user: x\n  password: '{p}'\n", "yaml"),
    ('{{"user": "x", "password": "{p}"}}\n', "json"),
    ("[mail]\npasswd={p}\n", "ini"),
    ("spring.datasource.password={p}\r\n", "properties"),
    ("<config><password>{p}</password></config>\n", "xml"),
    ('<add key="DbPassword" value="{p}" />\n', "config"),
    ("define('DB_PASSWORD', '{p}');\n", "php"),
    ('ds.setPassword("{p}");\n', "java"),
    ("export PGPASSWORD={p}; psql\n", "sh"),
    ("  - MYSQL_ROOT_PASSWORD={p}\n", "yml"),
    ("ENV ADMIN_PASSWORD {p}\nENV ADMIN_PASSWORD={p}\n", "Dockerfile"),
    ("docker login -u x --password {p}\n", "sh"),
    ("Server=db;User Id=sa;Password={p};\n", "txt"),
    ("machine x.org login me password {p}\n", "txt"),
    ("- name: DB_PASSWORD\n  value: {p}\n", "yml"),
    ("CREATE USER x IDENTIFIED BY '{p}';\n", "sql"),
    ("curl -u me:{p} http://h/\n", "sh"),
    ("sshpass -p '{p}' ssh h\n", "sh"),
    ("mysql -u root -p{p} shop\n", "sh"),
    ("postgres://app:{p}@db.internal:5432/shop\n", "txt"),
    ('url = "mongodb+srv://app:{p}@c0.mongodb.net/x"\n', "py"),
    ("redis://:{p}@cache:6379/0\n", "txt"),
    ("git clone https://me:{p}@git.internal/x.git\n", "sh"),
    ("amqp://me:{p}@mq/\n", "cfg"),
    ("aws_secret_access_key = {r}\n", "txt"),
    ('"SecretAccessKey": "{r}",\n', "json"),
    ('API_KEY = "{r}"\n', "py"),
    ("const apiKey = '{r}';\n", "js"),
    ("client_secret: {r}\n", "yml"),
    ("SECRET_KEY='{r}'\n", "py"),
    ("secret_key_base: {r}\n", "yml"),
    ("JWT_SECRET={r}\n", "txt"),
    ("Authorization: Bearer {r}\n", "http"),
    ("curl -H 'Authorization: token {r}' h\n", "sh"),
    ('"auths": {{"r.io": {{"auth": "{r}"}}}}\n', "json"),
    ("//registry/:_authToken={r}\n", "txt"),
    ("[Interface]\nPrivateKey = {r}Abc=\n", "conf"),
    ("<key>apiKey</key>\n<string>{r}</string>\n", "plist"),
    ('<string name="api_key">{r}</string>\n', "xml"),
    ("kind: Secret\nmetadata: {{name: x}}\ndata:\n  x: {r}\n", "yml"),
    ('{{"kty": "EC", "d": "{r}Abc"}}\n', "json"),
    ('access_token := "{r}"\n', "go"),
    (":api_key => '{r}'\n", "rb"),
    ('os.environ["SERVICE_TOKEN"] = "{r}"\n', "py"),
    ("otpauth://totp/x?secret={r}\n", "txt"),
    ('requests.get(u, auth=("me", "{p}"))\n', "py"),
    ("The password is {p}.\n", "md"),
    ("DB_PW={p}\n", "txt"),
    ('"config": "{{\\"password\\": \\"{p}\\"}}"\n', "json"),
    ("<Password>\n  <Value>{p}</Value>\n</Password>\n", "xml"),
    ("jdbc:mysql://h/db?user=x&password={p}&ssl=1\n", "txt"),
    ("SECRET_KEY = 'x#{p}$(&)'\n", "py"),
    ("password='(9{p})'\n", "py"),
)


def _values(random: Random) -> Iterator[Plant]:
    for number, (form, suffix) in enumerate(VALUES):
        secret = _password(random) if "{p}" in form else chars(random, ALPHANUMERIC, 40)
        yield Plant(f"values/{number}.{suffix}", form.format(p=secret, r=secret).encode(), secret)
