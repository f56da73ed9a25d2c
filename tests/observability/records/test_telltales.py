"""What looks like a secret is masked by where it stands or by its shape; what does not look like one is not."""

import base64

import pytest

from mcp_hub.security.redaction import MASK, Redactor
from mcp_hub.security.redaction.heuristics import is_secret_value

REDACTION = Redactor()
LONG = "Ab3dEf6hIj9lMn2pQr5tUv8xYz1B"
JWT = ".".join(
    base64.urlsafe_b64encode(part).rstrip(b"=").decode()
    for part in (b'{"alg":"HS256","typ":"JWT"}', b'{"sub":"1234567890","name":"A"}', b"signature of it all")
)
KEY = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7bq2\nq8Nw/+zZ0a1b2c3d4e==\n-----END RSA PRIVATE KEY-----"

SHAPES = [
    *(f"{prefix}{LONG}" for prefix in ("ghp_", "gho_", "ghs_", "ghu_", "github_pat_", "glpat-")),
    *(f"{prefix}{LONG}" for prefix in ("npm_", "pypi-", "hf_")),
    *(f"{prefix}{LONG}" for prefix in ("sk_live_", "sk_test_", "rk_live_", "sk-", "sk-proj-", "sk-ant-api03-")),
    *(f"{prefix}-1234567890-{LONG}" for prefix in ("xoxb", "xoxp", "xoxa")),
    *("AKIAIOSFODNN7EXAMPLE", "ASIAIOSFODNN7EXAMPLE", "AIzaSyA-1234567890abcdefghijklmnopqrstu"),
    f"dop_v1_{'0123456789abcdef' * 4}",
    f"SG.{LONG}.{LONG}",
    "SK0123456789abcdef0123456789abcdef",
    JWT,
    KEY,
    KEY.replace("\n", "\\n"),
    KEY.replace("RSA ", "OPENSSH "),
]  # fmt: skip


@pytest.mark.parametrize("secret", SHAPES)
def test_texts_in_the_format_of_a_secret_are_masked_anywhere(secret: str) -> None:
    assert is_secret_value(secret)
    for text in (f"it said {secret} and went on", f"({secret})", secret, f"two: {secret}, {secret}"):
        assert REDACTION.text(text) == text.replace(secret, MASK)
    assert REDACTION.value({"note": f"see {secret}"}) == {"note": f"see {MASK}"}


def test_a_truncated_private_key_is_masked() -> None:
    assert REDACTION.text(f"found {KEY[:60]}") == f"found {MASK}"
    assert REDACTION.text(f"found {KEY[:60]}… (900 characters)") == f"found {MASK}… (900 characters)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        # XML
        ("<user>me</user><password>hunter2</password>", "<user>me</user><password>***</password>"),
        ("<db:Password xml:lang='en'>a b\n c</db:Password> x", "<db:Password xml:lang='en'>***</db:Password> x"),
        ("<apiKey><![CDATA[a<b]]></apiKey>", "<apiKey>***</apiKey>"),
        ("<credentials><user>u</user><x>p</x></credentials>", "<credentials>***</credentials>"),
        ('<db password="hunter2" user="me"/>', '<db password=*** user="me"/>'),
        ('<add value="hunter2" key="DbPassword" />', '<add value=*** key=*** />'),
        ("<p><token>abc123", "<p><token>***"),
        # YAML
        ("user: me\npassword: |\n  line one\n\n  line two\nhost: db", "user: me\npassword: |\n  ***\nhost: db"),
        ("a:\n  - secret: >-  # why\n      one\n      two\n    b: x", "a:\n  - secret: >-  # why\n      ***\n    b: x"),
        ("api_key:\n    abc\n    def\nport: 1", "api_key:\n    ***\nport: 1"),
        ("password: |\r\n  one\r\n  two\r\nhost: db", "password: |\r\n  ***\r\nhost: db"),
        ("password: hunter2\nhost: db", "password: ***\nhost: db"),
        ("- {user: me, password: hunter2}", "- {user: me, password: ***}"),
        # INI, dotenv, properties
        ("[db]\npassword = hunter2\nhost = x", "[db]\npassword = ***\nhost = x"),
        ("export API_KEY='a b c'\nHOST=x", "export API_KEY=***\nHOST=x"),
        ("db.password=hunter2\ndb.pin=4711", "db.password=***\ndb.pin=***"),
        # headers, command lines
        ("X-Auth-Token: abc\r\nAccept: */*", "X-Auth-Token: ***\r\nAccept: */*"),
        ("curl -H 'Authorization: Bearer abc' --pw x --dbPin=4711 y", "curl -H 'Authorization: ***"),
        ("run --pw x --dbPin=4711 y", "run --pw *** --dbPin=*** y"),
        ("mysql -uroot --password hunter2 db", "mysql -uroot --password *** db"),
        # data sources
        ("Server=db;User Id=me;Pwd=hunter2;Timeout=3", "Server=db;User Id=me;Pwd=***;Timeout=3"),
        ("AccountName=a;AccountKey=abc/+d==;EndpointSuffix=x", "AccountName=a;AccountKey=***;EndpointSuffix=x"),
        ("https://a.blob.example/c?sv=2020&sig=a%2Bb%3D&se=1", "https://a.blob.example/c?sv=2020&sig=***&se=1"),
        ("host=db user=me password='a b' dbname=x", "host=db user=me password=*** dbname=x"),
        ("me:hunter2@tcp(db:3306)/x", "me:***@tcp(db:3306)/x"),
        ("mongodb+srv://me:hunter2@db/x", "mongodb+srv://***@db/x"),
        ('connection_string: "Server=db;Uid=me"', "connection_string: ***"),
        ('{"cvv": "123", "dsn": "x"}', '{"cvv": ***, "dsn": ***}'),
    ],
)  # fmt: skip
def test_values_in_secret_positions_are_masked(text: str, shown: str) -> None:
    assert REDACTION.text(text) == shown


@pytest.mark.parametrize(
    "text",
    [
        "<token> stands for the token of <user>, see <b>the manual</b>",
        "<p>The password is not shown.</p><key/>",
        "-----BEGIN CERTIFICATE-----\nMIIEpAIBAAKCAQEA7bq2\n-----END CERTIFICATE-----",
        "-----BEGIN PUBLIC KEY-----\nMIIEpAIBAAKCAQEA7bq2\n-----END PUBLIC KEY-----",
        "task-0123456789abcdef0123 and disk-usage-of-the-whole-machine",
        "sk-learn, hf_hub, npm_config, eyJ, AKIA, SKU 12, SG.1",
        "the mapping is pinned: spinning, opinion=x, pipeline: y, PINNED=1",
        "The following are needed for a token:\n    this\n    that",
        "a <- b --> c -- d",
        "if x < 3 and y > 4: return",
    ],
)
def test_texts_that_only_resemble_a_secret_are_not_masked(text: str) -> None:
    assert REDACTION.text(text) == text
