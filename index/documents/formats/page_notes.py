"""The values of a pdf page's form fields, each beside its label, and the notes on it, by pypdfium2.

xberg does not say on which page a field is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator

import pypdfium2
import pypdfium2.raw as pdfium

MAX_NOTES = 5000  # fields and notes of a page
NOTES = (pdfium.FPDF_ANNOT_TEXT, pdfium.FPDF_ANNOT_FREETEXT)
BUTTONS = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
NO_VALUE = (pdfium.FPDF_FORMFIELD_PUSHBUTTON, pdfium.FPDF_FORMFIELD_SIGNATURE)


def read(document: pypdfium2.PdfDocument, page: pypdfium2.PdfPage) -> Iterator[str]:
    """Yield a line for each field with a value, and for each note."""
    forms, words = document.formenv, page.get_textpage()
    for index in range(min(pdfium.FPDFPage_GetAnnotCount(page), MAX_NOTES)):
        note = pdfium.FPDFPage_GetAnnot(page, index)
        kind = pdfium.FPDFAnnot_GetSubtype(note)
        if kind in NOTES and (text := _text(pdfium.FPDFAnnot_GetStringValue, note, b"Contents")):
            yield f"Note: {text}"
        elif kind == pdfium.FPDF_ANNOT_WIDGET and forms and (value := _value(forms, note)):
            name = _text(pdfium.FPDFAnnot_GetFormFieldName, forms, note)
            yield f"{_label(words, note) or name}: {value}"
        pdfium.FPDFPage_CloseAnnot(note)
    words.close()


def _value(forms: pypdfium2.PdfFormEnv, field: pdfium.FPDF_ANNOTATION) -> str:
    kind = pdfium.FPDFAnnot_GetFormFieldType(forms, field)
    if kind in BUTTONS:
        return "☒" if pdfium.FPDFAnnot_IsChecked(forms, field) else "☐"
    return "" if kind in NO_VALUE else _text(pdfium.FPDFAnnot_GetFormFieldValue, forms, field)


def _label(words: pypdfium2.PdfTextPage, field: pdfium.FPDF_ANNOTATION) -> str:
    """Return the text left of a field, else right of it."""
    box = pdfium.FS_RECTF()
    pdfium.FPDFAnnot_GetRect(field, box)
    sides = ({"right": box.left}, {"left": box.right})
    texts = (words.get_text_bounded(bottom=box.bottom, top=box.top, **side) for side in sides)
    return next(filter(None, (" ".join(text.split()).rstrip(":") for text in texts)), "")


def _text(ask: Callable[..., int], *what: object) -> str:
    """Return a text of pdfium, which says how many bytes it has and writes so many."""
    size = ask(*what, None, 0)
    buffer = ctypes.create_string_buffer(size)
    ask(*what, ctypes.cast(buffer, ctypes.POINTER(pdfium.FPDF_WCHAR)), size)
    return buffer.raw.decode("utf-16-le", "replace").rstrip("\0").strip()
