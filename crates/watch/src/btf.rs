//! The types of the running kernel: where a field is in a structure, and the number of a type.
//!
//! A program that is told of a new process gets its `task_struct`, whose layout differs by kernel.
//! A program that names the type of its tracepoint may follow the pointers among its arguments
//! without a call: the kernel checks these reads once, when the program is loaded. The kernel
//! describes its types in `/sys/kernel/btf/vmlinux` (`Documentation/bpf/btf.rst`): a header, the
//! types one after another, and their names. A type has 12 bytes, and more by kind.

use std::io;

use crate::program::Fields;

/// The description of the running kernel's types.
const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const TYPEDEF: u32 = 8;

/// The description of a kernel's types.
pub(crate) struct Types(Vec<u8>);

impl Types {
    /// Reads the description of the running kernel's types.
    pub(crate) fn read() -> io::Result<Types> {
        let failed =
            |error: io::Error| io::Error::new(error.kind(), format!("reading {VMLINUX}: {error}"));
        std::fs::read(VMLINUX).map(Types).map_err(failed)
    }

    /// Returns the offset of a field in a structure, in bytes.
    pub(crate) fn offset(&self, structure: &str, field: &str) -> io::Result<i32> {
        let found = self.find(STRUCT, structure.as_bytes());
        let offset = found.and_then(|found| member(&self.0, &found, field.as_bytes()));
        offset.ok_or_else(|| {
            io::Error::other(format!("{VMLINUX} has no field {field} in the structure {structure}"))
        })
    }

    /// Returns where the fields are that the programs read.
    pub(crate) fn fields(&self) -> io::Result<Fields> {
        Ok(Fields {
            tgid: self.offset("task_struct", "tgid")?,
            signal: self.offset("task_struct", "signal")?,
            live: self.offset("signal_struct", "live")?,
            handler: self.offset("k_sigaction", "sa")? + self.offset("sigaction", "sa_handler")?,
        })
    }

    /// Returns the number of the type of a tracepoint.
    pub(crate) fn tracepoint(&self, name: &str) -> io::Result<u32> {
        let found = self.find(TYPEDEF, format!("btf_trace_{name}").as_bytes());
        found
            .map(|found| found.number)
            .ok_or_else(|| io::Error::other(format!("{VMLINUX} has no tracepoint {name}")))
    }

    fn find(&self, kind: u32, name: &[u8]) -> Option<Type> {
        find(&self.0, kind, name)
    }
}

/// A type that was found.
struct Type {
    /// The first type has the number 1.
    number: u32,
    info: u32,
    /// Where its members are.
    members: usize,
    /// Where names are.
    names: usize,
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(word.try_into().ok()?))
}

fn is_named(bytes: &[u8], names: usize, name: u32, expected: &[u8]) -> bool {
    let name = bytes.get(names + name as usize..).unwrap_or_default();
    name.strip_prefix(expected).is_some_and(|rest| rest.first() == Some(&0))
}

fn find(bytes: &[u8], kind: u32, expected: &[u8]) -> Option<Type> {
    let magic = u16::from_ne_bytes(bytes.get(..2)?.try_into().ok()?);
    let header = word(bytes, 4)? as usize;
    let place = |at: usize| Some(header + word(bytes, at)? as usize);
    let (mut at, length) = (place(8)?, word(bytes, 12)? as usize);
    let names = place(16)?;
    if magic != MAGIC {
        return None;
    }
    let end = at + length;
    for number in 1.. {
        if at >= end {
            break;
        }
        let (name, info) = (word(bytes, at)?, word(bytes, at + 4)?);
        let (found, count) = (info >> 24 & 0x1f, info as usize & 0xffff);
        let members = at + 12;
        if found == kind && is_named(bytes, names, name, expected) {
            return Some(Type { number, info, members, names });
        }
        at = members + trailer(found, count)?;
    }
    None
}

/// Returns where a member of a structure is, in bytes.
fn member(bytes: &[u8], structure: &Type, field: &[u8]) -> Option<i32> {
    let count = structure.info as usize & 0xffff;
    for member in (0..count).map(|number| structure.members + 12 * number) {
        if is_named(bytes, structure.names, word(bytes, member)?, field) {
            // In bits; of a structure with bit fields, the upper byte is a field's width.
            let offset = word(bytes, member + 8)?;
            let bits = if structure.info >> 31 == 1 { offset & 0x00ff_ffff } else { offset };
            return i32::try_from(bits / 8).ok();
        }
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
        let types = Types(description());
        assert_eq!(types.offset("ab", "yz").unwrap(), 8);
        assert_eq!(types.offset("ab", "x").unwrap(), 0);
        for (structure, field) in [("a", "x"), ("ab", "y"), ("abc", "x"), ("int", "x")] {
            let error = types.offset(structure, field).unwrap_err().to_string();
            assert!(error.contains(structure) && error.contains(field), "{error}");
        }
        assert_eq!(types.find(STRUCT, b"ab").unwrap().number, 2);
        assert!(types.tracepoint("sys_exit").is_err());
        // No shorter text makes it look beyond the end.
        for length in 0..types.0.len() {
            let _ = Types(types.0[..length].to_vec()).offset("ab", "yz");
        }
    }
}
