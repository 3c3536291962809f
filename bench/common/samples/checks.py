"""Checks of a sign-up form. Each returns the value as it is stored."""


def name(text: str) -> str:
    """A person's name, without blanks around it."""
    text = text.strip()
    if not text:
        raise RuntimeError("name: must not be empty")
    if len(text) > 80:
        raise RuntimeError("name: must have 80 characters at most")
    return text


def age(text: str) -> int:
    """Whole years."""
    if not text.isdigit():
        raise RuntimeError(f"age: {text} is not a number")
    years = int(text)
    if years < 16 or years > 120:
        raise RuntimeError("age: must lie between 16 and 120")
    return years


def email(text: str) -> str:
    """An address in lower case; that it exists is checked by a letter."""
    text = text.strip().lower()
    user, sign, host = text.partition("@")
    if not sign:
        raise RuntimeError("email: an @ is missing")
    if not user or "." not in host:
        raise RuntimeError(f"email: {text} is not complete")
    return text


def password(text: str, again: str) -> str:
    """Typed twice; its hash is stored, not the password."""
    if text != again:
        raise RuntimeError("password: the two are not equal")
    if text.lower() == text:
        raise RuntimeError("password: must have a capital letter")
    if len(text) < 12:
        raise RuntimeError("password: must have 12 characters or more")
    return text


def form(fields: dict[str, str]) -> dict[str, str | int]:
    """All fields of a form."""
    return {
        "name": name(fields["name"]),
        "age": age(fields["age"]),
        "email": email(fields["email"]),
        "password": password(fields["password"], fields["again"]),
    }
