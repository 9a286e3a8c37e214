//! Where a field is in a structure of the running kernel.
//!
//! A program that is told of a new process gets its `task_struct`, whose layout differs by kernel.
//! The kernel describes its types in `/sys/kernel/btf/vmlinux` (`Documentation/bpf/btf.rst`):
//! a header, the types one after another, and their names. A type has 12 bytes, and more by kind.

use std::io;

/// The description of the running kernel's types.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;

/// Returns the offset of a field in a structure, in bytes.
///
/// # Errors
///
/// The description cannot be read, or has no such field.
pub(crate) fn offset(structure: &str, field: &str) -> io::Result<i32> {
    let bytes = std::fs::read(VMLINUX)
        .map_err(|error| io::Error::new(error.kind(), format!("reading {VMLINUX}: {error}")))?;
    find(&bytes, structure.as_bytes(), field.as_bytes()).ok_or_else(|| {
        io::Error::other(format!("{VMLINUX} has no field {field} in the structure {structure}"))
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn find(bytes: &[u8], structure: &[u8], field: &[u8]) -> Option<i32> {
    let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let header = word(bytes, 4)? as usize;
    let place = |at: usize| Some(header + word(bytes, at)? as usize);
    let (types, types_len) = (place(8)?, word(bytes, 12)? as usize);
    let names = place(16)?;
    if magic != MAGIC {
        return None;
    }
    let is_named = |name: u32, expected: &[u8]| {
        let name = bytes.get(names + name as usize..).unwrap_or_default();
        name.strip_prefix(expected).is_some_and(|rest| rest.first() == Some(&0))
    };
    let mut at = types;
    while at < types + types_len {
        let (name, info) = (word(bytes, at)?, word(bytes, at + 4)?);
        let (kind, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        let members = at + 12;
        if kind == STRUCT && is_named(name, structure) {
            for member in (0..count).map(|number| members + 12 * number) {
                if is_named(word(bytes, member)?, field) {
                    // In bits; of a structure with bit fields, the upper byte is a field's width.
                    let offset = word(bytes, member + 8)?;
                    let bits = if info >> 31 == 1 { offset & 0x00ff_ffff } else { offset };
                    return i32::try_from(bits / 8).ok();
                }
            }
        }
        at = members + trailer(kind, count)?;
    }
    None
}

/// Returns how many bytes follow a type's first twelve.
fn trailer(kind: u32, count: usize) -> Option<usize> {
    Some(match kind {
        // Structures and unions, and their members; enumerations of 64 bits.
        4 | 5 | 19 => 12 * count,
        // Enumerations, function prototypes, and sections.
        6 | 13 => 8 * count,
        15 => 12 * count,
        // Integers, variables, and marks of declarations; arrays.
        1 | 14 | 17 => 4,
        3 => 12,
        2 | 7..=12 | 16 | 18 => 0,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A description with an integer, and a structure `ab` with the fields `x` and `yz`.
    fn description() -> Vec<u8> {
        let types: [u32; 13] = [
            // int, and its encoding.
            1,
            1 << 24,
            4,
            32, //
            // The structure, and its members.
            5,
            4 << 24 | 2,
            16,
            8,
            1,
            0,
            10,
            1,
            64,
        ];
        let names = b"\0int\0ab\0x\0yz\0";
        let mut bytes = Vec::new();
        bytes.extend(MAGIC.to_ne_bytes());
        bytes.extend([1, 0]);
        for word in [24, 0, 4 * types.len() as u32, 4 * types.len() as u32, names.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        types.iter().for_each(|word| bytes.extend(word.to_ne_bytes()));
        bytes.extend(names);
        bytes
    }

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let bytes = description();
        assert_eq!(find(&bytes, b"ab", b"yz"), Some(8));
        assert_eq!(find(&bytes, b"ab", b"x"), Some(0));
        for (structure, field) in [("a", "x"), ("ab", "y"), ("abc", "x"), ("int", "x")] {
            assert_eq!(find(&bytes, structure.as_bytes(), field.as_bytes()), None);
        }
        // No shorter text makes it look beyond the end.
        for length in 0..bytes.len() {
            let _ = find(&bytes[..length], b"ab", b"yz");
        }
    }
}
