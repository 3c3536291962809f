"""Names of files and folders in which common tools keep passwords, keys, tokens and histories."""

from __future__ import annotations

import os
import re

# fmt: off
FOLDERS = frozenset({
    ".aliyun", ".aws", ".azure", ".bluemix", ".chef", ".docker", ".gcloud", ".gnupg", ".kube",
    ".minikube", ".oci", ".password-store", ".putty", ".ssh", ".step", ".terraform.d",
})
NAMES = frozenset({  # names, all in lower case
    # histories of shells, databases and interpreters
    ".dbshell", ".histfile", ".history", ".lesshst", ".octave_hist", ".rhistory", ".viminfo",
    ".zhistory", "consolehost_history.txt", "lesshst", "repl_history.jl",
    # passwords and keys
    ".htpasswd", ".vault-pass", ".vault-token", ".vault_pass", "chap-secrets", "gshadow",
    "htpasswd", "ipsec.secrets", "pap-secrets", "passwd", "secring.gpg", "shadow", "vault_pass",
    "vault_pass.txt", "wallet.dat", "wpa_supplicant.conf",
    # environments, clouds and services
    ".boto", ".curlrc", ".databrickscfg", ".dev.vars", ".dockercfg", ".dockerconfigjson",
    ".flaskenv", ".modal.toml", ".passwd-s3fs", ".renviron", ".s3cfg", ".sentryclirc",
    ".terraformrc", ".trc", ".tugboat", "accesstokens.json", "auth.json", "azureauth.json",
    "azureprofile.json", "clouds.yaml", "clouds.yml", "kaggle.json", "kubeconfig", "ngrok.yml",
    "openrc", "rclone.conf", "rootkey.csv", "stored_tokens", "terraform.rc", "token.json",
    # databases
    ".my.cnf", ".mylogin.cnf", ".mongorc.js", ".pgpass", "pgpass.conf",
    # packages
    ".npmrc", ".pnpmrc", ".pypirc", ".yarnrc", ".yarnrc.yml", "key.properties",
    "keystore.properties", "pip.conf", "pip.ini", "settings-security.xml",
    # networks, mail and version control
    ".authinfo", ".fetchmailrc", ".ftpconfig", ".git-credentials", ".gitcookies", ".mbsyncrc",
    ".msmtprc", ".muttrc", ".netrc", ".offlineimaprc", ".remote-sync.json", ".rhosts",
    ".smbcredentials", ".wgetrc", "_netrc", "cookies.txt", "filezilla.xml", "recentservers.xml",
    "sftp-config.json", "sftp.json", "sitemanager.xml",
})
STARTS = (
    ".authinfo.", ".credential", ".env", ".passwd", ".password", ".secret", ".token", "id_dsa",
    "id_ecdsa", "id_ed25519", "id_rsa", "krb5cc_", "kubeconfig-", "kubeconfig.", "utc--",
    "xonsh-history",
)
ENDINGS = (
    "-history", "-openrc.sh", "_dsa", "_ecdsa", "_ed25519", "_history", "_passwd", "_rsa",
    ".agilekeychain", ".bks", ".env", ".htpasswd", ".jks", ".jwk", ".kdb", ".kdbx", ".key",
    ".keychain", ".keychain-db", ".keystore", ".keytab", ".kubeconfig", ".mobileprovision",
    ".nmconnection", ".ovpn", ".p12", ".p8", ".passwd", ".pem", ".pfx", ".pkcs12", ".ppk", ".psk",
    ".publishsettings",
    ".secret", ".secrets", ".tfstate", ".tfstate.backup", ".tfvars", ".tfvars.json", ".token",
)
# fmt: on
PATHS = {  # names that say little without their folder
    "access_tokens.db": {"gcloud"},
    "auth.json": {"containers"},
    "config": {".bundle", ".snowsql", "op"},
    "config.json": {".cf", ".mc", ".netlify"},
    "config.toml": {"stripe"},
    "config.yaml": {"doctl"},
    "config.yml": {".fly", "glab-cli"},
    "credentials.db": {"gcloud"},
    "history.txt": {"nushell"},
    "hosts.yml": {"gh"},
    "hub": {".config"},
    "settings.xml": {".m2"},
    "token": {".huggingface", "huggingface"},
}
# Words in the names of data files. Code with such a name is judged by its contents.
WORDS = re.compile(
    r"credential|firebase-adminsdk|mnemonic|passphrase|password|private[_-]?key|secret"
    r"|service[_-]?account|(?:access|account|api|auth)[_-]?keys?(?![a-z])"
    r"|(?:access|api|auth|bearer|refresh)[_-]?token|(?:backup|recovery)[_-]?codes|^wg\d|\.env\."
)
# fmt: off
DATA = frozenset({  # suffixes
    "asc", "cfg", "cnf", "conf", "config", "csv", "db", "dev", "enc", "env", "gpg", "ini", "json",
    "json5", "jsonc", "local", "log", "plist", "prod", "production", "properties", "sql", "staging",
    "swp", "toml", "tsv", "txt", "xml", "yaml", "yml",
})
# fmt: on
COPIES = (".1", ".2", ".3", ".backup", ".bak", ".copy", ".old", ".orig", ".save", "~")


def is_secret(path: str) -> bool:
    """Return whether a file with the name of this one usually holds secrets."""
    folders, _, name = path.replace(os.sep, "/").rpartition("/")
    name = name.lower()
    while name.endswith(COPIES):
        name = name[: -next(len(end) for end in COPIES if name.endswith(end))]
    if name in NAMES or name.startswith(STARTS) or name.endswith(ENDINGS):
        return True
    if name in PATHS and folders.rpartition("/")[2].lower() in PATHS[name]:
        return True
    _, dot, suffix = name.rpartition(".")
    return (not dot or suffix in DATA) and WORDS.search(name) is not None
