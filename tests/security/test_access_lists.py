"""Access control lists of Windows: who is refused, by lists as Windows writes them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_hub.security.access_lists import READ, REPLACE, WRITE, access_list, others_with
from mcp_hub.security.private_files import WritableByOthers, refuse_granted

ME = "S-1-5-21-3623811015-3361044348-30300820-1013"
PROFILE = f"D:(A;ID;FA;;;SY)(A;ID;FA;;;BA)(A;ID;FA;;;{ME})"
"""A file in a user's own folder."""
OF_A_DRIVE = "D:AI(A;ID;FA;;;BA)(A;ID;FA;;;SY)(A;ID;0x1301bf;;;AU)(A;ID;0x1200a9;;;BU)"
"""A file in a folder at the top of a drive: every user who has signed in may change it."""
DRIVE = (
    "D:PAI(A;OICI;FA;;;BA)(A;OICI;FA;;;SY)(A;OICI;0x1200a9;;;BU)(A;;LC;;;AU)(A;OICIIO;SDGXGWGR;;;AU)"
    "S:P(TP;;;;;S-1-19-512-4096)"
)
PUBLISHED = "D:(A;;FA;;;BA)(A;;FR;;;WD)"


def test_a_file_in_the_users_own_folder_is_private() -> None:
    assert others_with(PROFILE, READ | WRITE | REPLACE) == ()


def test_a_file_at_the_top_of_a_drive_can_be_changed_by_every_user() -> None:
    assert others_with(OF_A_DRIVE, WRITE) == ("every user who has signed in",)


def test_the_top_of_a_drive_itself_cannot_be_replaced() -> None:
    assert others_with(DRIVE, REPLACE) == ()


def test_read_access_does_not_count_as_write_access() -> None:
    assert others_with(PUBLISHED, WRITE) == ()
    assert others_with(PUBLISHED, READ) == ("Everyone",)


@pytest.mark.parametrize(
    ("granted", "who"),
    [
        ("D:(A;;FA;;;WD)", ("Everyone",)),
        ("D:(A;;0x2;;;S-1-5-32-545)", ("every user of this machine",)),
        ("D:(A;;GW;;;BU)", ("every user of this machine",)),
        ("D:(A;;SD;;;AN)(A;;WD;;;BG)(A;;WO;;;WD)(A;;FA;;;WD)", ("anonymous users", "guests", "Everyone")),
        ('D:(XA;;FA;;;BU;(@User.Department == "x"))(A;;FR;;;WD)', ("every user of this machine",)),
        ("D:NO_ACCESS_CONTROL", ("Everyone",)),
        (f"O:{ME}G:DUD:P(A;;FA;;;WD)S:AI(AU;;FA;;;WD)", ("Everyone",)),
        ("D:(A;IO;FA;;;WD)", ()),
        ("D:(D;;FA;;;WD)", ()),
        (f"O:{ME}", ()),
        ("", ()),
    ],
)
def test_each_type_of_access_control_entry_is_evaluated(granted: str, who: tuple[str, ...]) -> None:
    assert others_with(granted, WRITE) == who


def test_a_file_that_others_can_write_is_refused_with_the_command_that_cures_it() -> None:
    path = Path("/drive/hub/servers.yaml")
    lists = {str(path): OF_A_DRIVE, "/drive/hub": OF_A_DRIVE, "/drive": DRIVE}
    with pytest.raises(WritableByOthers, match=r"every user who has signed in can write.*icacls"):
        refuse_granted(path, lists.get)


def test_a_file_in_a_directory_that_others_can_replace_is_refused() -> None:
    path = Path("/drive/hub/servers.yaml")
    lists = {str(path): PROFILE, "/drive/hub": OF_A_DRIVE, "/drive": DRIVE}
    with pytest.raises(WritableByOthers, match="/drive/hub: every user"):
        refuse_granted(path, lists.get)


def test_a_private_file_is_accepted() -> None:
    path = Path("/drive/users/me/servers.yaml")
    lists = {str(path): PROFILE, "/drive/users/me": PROFILE, "/drive/users": DRIVE, "/drive": DRIVE}
    refuse_granted(path, lists.get)


def test_access_lists_are_not_read_on_other_systems(tmp_path: Path) -> None:
    assert access_list(str(tmp_path)) is None
