//! What kind of file system a directory is on: recovery times on a memory disk say nothing about a real one.

use std::path::Path;

/// Magic numbers from `statfs(2)`.
const KINDS: [(u64, &str); 11] = [
    (0xEF53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683E, "btrfs"),
    (0x2FC1_2FC1, "zfs"),
    (0xF2F5_2010, "f2fs"),
    (0x794C_7630, "overlayfs"),
    (0x6969, "nfs"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (MEMORY[0], "tmpfs"),
    (MEMORY[1], "ramfs"),
];
const MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58F6];

/// The file system of `directory`, in words.
pub(crate) fn describe(directory: &Path) -> String {
    let magic = match rustix::fs::statfs(directory) {
        Ok(found) => found.f_type as u64 & 0xFFFF_FFFF,
        Err(e) => return format!("unknown ({e})"),
    };
    let name = KINDS.iter().find(|(kind, _)| *kind == magic).map(|(_, name)| (*name).to_string());
    let name = name.unwrap_or_else(|| format!("type 0x{magic:x}"));
    if MEMORY.contains(&magic) { format!("{name}: in memory, so the times below mean nothing") } else { name }
}
