//! An assembler for BPF: instructions with labels, as words that the kernel takes.
//!
//! An instruction has 64 bits: the operation, two registers, a signed offset and a signed operand
//! (`Documentation/bpf/standardization` of the kernel). The programs of this crate are a few
//! hundred of these, written by hand with the calls below, so no compiler for BPF, no object file
//! and no loader is a part of the build. Jumps name labels, and are resolved when all is written.

/// A register. `R0` has results, `R1` to `R5` arguments; helpers preserve `R6` to `R9`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Register(u8);

pub(crate) const R0: Register = Register(0);
pub(crate) const R1: Register = Register(1);
pub(crate) const R2: Register = Register(2);
pub(crate) const R3: Register = Register(3);
pub(crate) const R4: Register = Register(4);
pub(crate) const R5: Register = Register(5);
pub(crate) const R6: Register = Register(6);
pub(crate) const R7: Register = Register(7);
pub(crate) const R8: Register = Register(8);
pub(crate) const R9: Register = Register(9);
/// The end of the stack, which grows down from it by at most 512 bytes.
pub(crate) const FRAME: Register = Register(10);

/// How many bytes a load or a store moves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Width {
    Four,
    Eight,
}

/// Arithmetic on 64 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    Add = 0x00,
    Sub = 0x10,
    Mul = 0x20,
    Or = 0x40,
    And = 0x50,
    ShiftLeft = 0x60,
    ShiftRight = 0x70,
    Xor = 0xa0,
    Move = 0xb0,
    ShiftSigned = 0xc0,
}

/// When a jump is taken; `Signed` compares signed numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum When {
    Equal = 0x10,
    AtLeast = 0x30,
    NotEqual = 0x50,
    SignedAtLeast = 0x70,
    Below = 0xa0,
    SignedBelow = 0xc0,
    SignedAtMost = 0xd0,
}

/// Functions of the kernel that a program may call (`bpf-helpers(7)`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Helper {
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    Ktime = 5,
    CurrentPidTgid = 14,
    MapPush = 87,
    MapPop = 88,
    ReadUser = 112,
    ReadKernel = 113,
    RingOutput = 130,
}

/// A place that jumps lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Label(usize);

/// A program while it is written.
#[derive(Default)]
pub(crate) struct Assembler {
    code: Vec<u64>,
    /// Where each label is, once it was placed.
    labels: Vec<Option<usize>>,
    /// Jumps, and the labels that they lead to.
    jumps: Vec<(usize, Label)>,
}

/// Bits of an operation.
const TO_REGISTER: u8 = 0x08;
const ALU_64: u8 = 0x07;
const JUMP: u8 = 0x05;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;
const WIDE: u8 = 0x18;
const LOAD: u8 = 0x61;
const STORE: u8 = 0x63;
const ATOMIC: u8 = 0xdb;

/// Marks the operand of a wide load as the descriptor of a map.
const IS_MAP: u8 = 1;

fn encode(operation: u8, to: u8, from: u8, offset: i16, operand: i32) -> u64 {
    let registers = from << 4 | to;
    u64::from(operation)
        | u64::from(registers) << 8
        | u64::from(offset as u16) << 16
        | u64::from(operand as u32) << 32
}

impl Width {
    fn bits(self) -> u8 {
        match self {
            Width::Four => 0x00,
            Width::Eight => 0x18,
        }
    }
}

impl Assembler {
    fn push(&mut self, operation: u8, to: Register, from: Register, offset: i16, operand: i32) {
        self.code.push(encode(operation, to.0, from.0, offset, operand));
    }

    /// Returns a label that is placed later.
    pub(crate) fn label(&mut self) -> Label {
        self.labels.push(None);
        Label(self.labels.len() - 1)
    }

    /// Places a label here.
    pub(crate) fn place(&mut self, label: Label) {
        let place = self.labels[label.0].replace(self.code.len());
        assert!(place.is_none(), "a label is placed once");
    }

    /// `to = to OP from`.
    pub(crate) fn alu(&mut self, op: Op, to: Register, from: Register) {
        self.push(ALU_64 | TO_REGISTER | op as u8, to, from, 0, 0);
    }

    /// `to = to OP operand`, the operand with its sign.
    pub(crate) fn alu_by(&mut self, op: Op, to: Register, operand: i32) {
        self.push(ALU_64 | op as u8, to, R0, 0, operand);
    }

    /// `to = value`.
    pub(crate) fn wide(&mut self, to: Register, value: u64) {
        self.push(WIDE, to, R0, 0, value as i32);
        self.code.push(encode(0, 0, 0, 0, (value >> 32) as i32));
    }

    /// `to` = the map with this descriptor.
    pub(crate) fn map(&mut self, to: Register, descriptor: i32) {
        self.push(WIDE, to, Register(IS_MAP), 0, descriptor);
        self.code.push(0);
    }

    /// `to = *(from + offset)`, with zeros above.
    pub(crate) fn load(&mut self, width: Width, to: Register, from: Register, offset: i16) {
        self.push(LOAD | width.bits(), to, from, offset, 0);
    }

    /// `*(to + offset) = from`.
    pub(crate) fn store(&mut self, width: Width, to: Register, offset: i16, from: Register) {
        self.push(STORE | width.bits(), to, from, offset, 0);
    }

    /// `*(to + offset) += from`, at once for all processors.
    pub(crate) fn atomic_add(&mut self, to: Register, offset: i16, from: Register) {
        self.push(ATOMIC, to, from, offset, 0);
    }

    /// `*(to + offset) |= from`, at once for all processors.
    pub(crate) fn atomic_or(&mut self, to: Register, offset: i16, from: Register) {
        self.push(ATOMIC, to, from, offset, 0x40);
    }

    /// Adds `value` to `*(to + offset)` at once for all processors; `value` gets what was there.
    pub(crate) fn fetch_add(&mut self, to: Register, offset: i16, value: Register) {
        self.push(ATOMIC, to, value, offset, 0x01);
    }

    /// Goes to a label.
    pub(crate) fn go(&mut self, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP, R0, R0, 0, 0);
    }

    /// Goes to a label when two registers compare so.
    pub(crate) fn go_when(&mut self, one: Register, when: When, other: Register, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP | TO_REGISTER | when as u8, one, other, 0, 0);
    }

    /// Goes to a label when a register and an operand compare so.
    pub(crate) fn go_if(&mut self, one: Register, when: When, operand: i32, label: Label) {
        self.jumps.push((self.code.len(), label));
        self.push(JUMP | when as u8, one, R0, 0, operand);
    }

    /// Calls a function of the kernel with `R1` to `R5`; `R0` has the result.
    pub(crate) fn call(&mut self, helper: Helper) {
        self.push(CALL, R0, R0, 0, helper as i32);
    }

    /// Ends the program with the result 0.
    pub(crate) fn exit(&mut self) {
        self.alu_by(Op::Move, R0, 0);
        self.push(EXIT, R0, R0, 0, 0);
    }

    /// Returns the program.
    ///
    /// # Panics
    ///
    /// If a jump leads to a label that was not placed, or too far.
    pub(crate) fn finish(mut self) -> Vec<u64> {
        for (at, label) in self.jumps {
            let target = self.labels[label.0].expect("every label is placed");
            let distance = target as i64 - at as i64 - 1;
            let distance = i16::try_from(distance).expect("a program is short");
            self.code[at] |= u64::from(distance as u16) << 16;
        }
        self.code
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_are_those_of_the_kernel_s_documentation() {
        let mut program = Assembler::default();
        let end = program.label();
        program.load(Width::Eight, R6, R1, 8);
        program.alu_by(Op::Move, R2, -5);
        program.go_if(R6, When::SignedBelow, 7, end);
        program.wide(R3, 0x1122_3344_5566_7788);
        program.map(R1, 9);
        program.call(Helper::Ktime);
        program.store(Width::Four, FRAME, -4, R0);
        program.fetch_add(R0, 16, R1);
        program.place(end);
        program.exit();
        let expected = [
            0x0000_0000_0008_1679,
            0xffff_fffb_0000_02b7,
            0x0000_0007_0007_06c5,
            0x5566_7788_0000_0318,
            0x1122_3344_0000_0000,
            0x0000_0009_0000_1118,
            0,
            0x0000_0005_0000_0085,
            0x0000_0000_fffc_0a63,
            0x0000_0001_0010_10db,
            0x0000_0000_0000_00b7,
            0x0000_0000_0000_0095,
        ];
        assert_eq!(program.finish(), expected);
    }

    #[test]
    #[should_panic(expected = "every label is placed")]
    fn a_jump_to_nowhere_is_a_mistake() {
        let mut program = Assembler::default();
        let nowhere = program.label();
        program.go(nowhere);
        program.finish();
    }
}
