"""Small real documents."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence

_TYPES = """<?xml version="1.0" encoding="UTF-8"?>
<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">
<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>
<Override PartName="/word/document.xml"
 ContentType="application/vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"/></Types>"""
_RELATIONS = """<?xml version="1.0" encoding="UTF-8"?>
<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">{}</Relationships>"""
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
_DOCUMENT = """<?xml version="1.0" encoding="UTF-8"?>
<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"
 xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"
 xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main"
 xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"
 xmlns:pic="http://schemas.openxmlformats.org/drawingml/2006/picture"><w:body>
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>{heading}</w:t></w:r></w:p>
<w:p><w:r><w:t>{text}</w:t></w:r>{picture}</w:p></w:body></w:document>"""
_PICTURE = """<w:r><w:drawing><wp:inline><a:graphic><a:graphicData><pic:pic><pic:blipFill><a:blip r:link="rId9"/>
</pic:blipFill></pic:pic></a:graphicData></a:graphic></wp:inline></w:drawing></w:r>"""

_OFFICE_TYPE = "application/vnd.openxmlformats-officedocument"
DOCX = f"{_OFFICE_TYPE}.wordprocessingml.document"
XLSX = f"{_OFFICE_TYPE}.spreadsheetml.sheet"
PPTX = f"{_OFFICE_TYPE}.presentationml.presentation"


def docx(heading: str, text: str, *, linked_picture: str | None = None) -> bytes:
    """A Word document with a heading and a paragraph; its picture, if any, is not in it but at that URL."""
    office = f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/>'
    picture = (
        f'<Relationship Id="rId9" Type="{_OFFICE}/image" Target="{linked_picture}" TargetMode="External"/>'
        if linked_picture
        else ""
    )
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", _TYPES)
        archive.writestr("_rels/.rels", _RELATIONS.format(office))
        archive.writestr("word/_rels/document.xml.rels", _RELATIONS.format(picture))
        body = _DOCUMENT.format(heading=heading, text=text, picture=_PICTURE if linked_picture else "")
        archive.writestr("word/document.xml", body)
    return buffer.getvalue()


def docx_bomb(megabytes: int) -> bytes:
    """A Word document of a few kilobytes whose text is that large when it is unpacked."""
    start, end = _DOCUMENT.format(heading="Bomb", text="SPLIT", picture="").split("SPLIT")
    office = f'<Relationship Id="rId1" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/>'
    return zipped({
        "[Content_Types].xml": [_TYPES],
        "_rels/.rels": [_RELATIONS.format(office)],
        "word/document.xml": [start, *["a" * 1_000_000] * megabytes, end],
    })  # fmt: skip


def zipped(files: Mapping[str, Sequence[str]]) -> bytes:
    """A ZIP of files, each given in pieces."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, pieces in files.items():
            with archive.open(name, "w") as file:
                for piece in pieces:
                    file.write(piece.encode())
    return buffer.getvalue()


def pdf(text: str) -> bytes:
    """One page with one line of text."""
    content = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET".encode()
    return _pdf(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content))


def pdf_bomb(megabytes: int) -> bytes:
    """One page whose content is that large when it is unpacked."""
    packing = zlib.compressobj(1)
    packed = b"".join(packing.compress(b" " * 1_000_000) for _ in range(megabytes)) + packing.flush()
    return _pdf(b"<< /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (len(packed), packed))


def pdf_with_picture(text: str, megabytes: int) -> bytes:
    """One page with one line of text and a picture that is that large when it is unpacked."""
    packing = zlib.compressobj(1)
    packed = b"".join(packing.compress(bytes(1_000_000)) for _ in range(megabytes)) + packing.flush()
    content = f"BT /F1 24 Tf 72 720 Td ({text}) Tj ET q 500 0 0 500 50 50 cm /I1 Do Q".encode()
    picture = (
        b"<< /Type /XObject /Subtype /Image /Width 1000000 /Height %d /ColorSpace /DeviceGray /BitsPerComponent 8"
        b" /Filter /FlateDecode /Length %d >>\nstream\n%s\nendstream" % (megabytes, len(packed), packed)
    )
    return _pdf(b"<< /Length %d >>\nstream\n%s\nendstream" % (len(content), content), picture)


def _pdf(content: bytes, picture: bytes | None = None) -> bytes:
    objects = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 4 0 R"
        b" /Resources << /Font << /F1 5 0 R >>%s >> >>" % (b"" if picture is None else b" /XObject << /I1 6 0 R >>"),
        content,
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        *([] if picture is None else [picture]),
    ]
    out, offsets = bytearray(b"%PDF-1.4\n"), []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n%s" % (len(objects) + 1, table)
    out += b"trailer\n<< /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (len(objects) + 1, start)
    return bytes(out)


def xlsx(rows: Sequence[Sequence[object]]) -> bytes:
    """A workbook with one sheet."""
    from openpyxl import Workbook

    workbook, buffer = Workbook(), io.BytesIO()
    for row in rows:
        workbook.active.append(row)
    workbook.save(buffer)
    return buffer.getvalue()


def pptx(title: str, text: str) -> bytes:
    """A presentation with one slide."""
    from pptx import Presentation

    presentation, buffer = Presentation(), io.BytesIO()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text, slide.placeholders[1].text = title, text
    presentation.save(buffer)
    return buffer.getvalue()
