//! Parser of registers, immediates and addresses.

use crate::program::{Address, Base, Entry, Guard, Register, Special, Word};

/// The type of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Width {
    /// 16 bits, stored in the lower half of a word.
    Short,
    /// 32 bits.
    Word,
    /// 64 bits.
    Long,
    /// A boolean.
    Predicate,
}

/// The registers of one `.reg` line, such as `%rd<53>`.
#[derive(Clone, Debug)]
struct Class {
    prefix: String,
    width: Width,
    first: Register,
    count: Register,
}

/// The declared registers of a kernel.
#[derive(Debug, Default)]
pub struct Names {
    classes: Vec<Class>,
}

/// The symbol of the block's shared memory, whose address is 0 here.
const SHARED: &str = "shared_bytes";

impl Names {
    /// Parses the text after `.reg`.
    pub fn declare(&mut self, text: &str, entry: &mut Entry) -> Result<(), String> {
        let wrong = || format!("`.reg {text}` is not known");
        if !entry.words.is_empty() || !entry.longs.is_empty() {
            return Err("registers are declared after the first instruction".to_owned());
        }
        let (kind, names) = text.trim().split_once(char::is_whitespace).ok_or_else(wrong)?;
        let (prefix, count) = names.trim().split_once('<').ok_or_else(wrong)?;
        let count: Register = count.strip_suffix('>').and_then(|count| count.parse().ok()).ok_or_else(wrong)?;
        let (width, file) = match kind {
            ".pred" => (Width::Predicate, &mut entry.n_predicates),
            ".b16" | ".u16" | ".s16" => (Width::Short, &mut entry.n_words),
            ".b32" | ".u32" | ".s32" | ".f32" => (Width::Word, &mut entry.n_words),
            ".b64" | ".u64" | ".s64" => (Width::Long, &mut entry.n_longs),
            _ => return Err(wrong()),
        };
        let first = *file;
        *file = file.checked_add(count).ok_or_else(|| format!("`.reg {text}`: there are too many registers"))?;
        self.classes.push(Class { prefix: prefix.to_owned(), width, first, count });
        Ok(())
    }

    /// The register with a name, which must have the given type.
    pub fn register(&self, name: &str, width: Width) -> Result<Register, String> {
        let end = name.find(|letter: char| letter.is_ascii_digit()).unwrap_or(name.len());
        let (prefix, number) = name.split_at(end);
        let class = self.classes.iter().find(|class| class.prefix == prefix);
        let number: Option<Register> = number.parse().ok();
        match (class, number) {
            (Some(class), Some(number)) if number < class.count && class.width == width => Ok(class.first + number),
            (Some(class), Some(number)) if number < class.count => {
                Err(format!("{name} is a register of type {:?}, not {width:?}", class.width))
            }
            _ => Err(format!("{name} is not declared")),
        }
    }

    /// Parses a guard's `p3` or `!p3`.
    pub fn guard(&self, text: &str) -> Result<Guard, String> {
        let (negated, name) = text.strip_prefix('!').map_or((false, text), |name| (true, name));
        Ok(Guard { predicate: self.register(name, Width::Predicate)?, negated })
    }

    /// The register of a source operand: a register, a special register, or an immediate.
    pub fn source(&self, text: &str, width: Width, entry: &mut Entry) -> Result<Register, String> {
        if let Some(special) = special(text) {
            return match width {
                Width::Word => word(entry, special),
                _ => Err(format!("{text} is a register of type Word, not {width:?}")),
            };
        }
        if text.starts_with('%') {
            return self.register(text, width);
        }
        let value = if text == SHARED { 0 } else { immediate(text)? };
        match width {
            Width::Short => word(entry, Word::Immediate(u32::from(low16(value)))),
            Width::Word => word(entry, Word::Immediate(low32(value)?)),
            Width::Long => long(entry, value),
            Width::Predicate => Err(format!("{text} is not a predicate")),
        }
    }

    /// Parses an address, such as `[%rd1+16]`.
    pub fn address(&self, text: &str, entry: &mut Entry) -> Result<Address, String> {
        let inside = text.strip_prefix('[').and_then(|text| text.strip_suffix(']'));
        let inside = inside.ok_or_else(|| format!("`{text}` is not an address"))?;
        let (base, offset) = inside.split_once('+').unwrap_or((inside, "0"));
        let offset = offset.trim().parse().map_err(|_| format!("`{text}` has an offset that is not known"))?;
        let base = base.trim();
        let base = match self.register(base, Width::Word) {
            Ok(register) => Base::Word(register),
            Err(_) if base == SHARED => Base::Word(word(entry, Word::Immediate(0))?),
            Err(_) => Base::Long(self.register(base, Width::Long)?),
        };
        Ok(Address { base, offset })
    }
}

fn special(text: &str) -> Option<Word> {
    let (name, axis) = text.split_once('.')?;
    let special = match name {
        "%tid" => Special::Thread,
        "%ntid" => Special::Threads,
        "%ctaid" => Special::Block,
        "%nctaid" => Special::Blocks,
        _ => return None,
    };
    Some(Word::Special(special, ["x", "y", "z"].iter().position(|name| *name == axis)?))
}

/// The register that holds a constant word; allocates it if necessary.
fn word(entry: &mut Entry, word: Word) -> Result<Register, String> {
    let place = entry.words.iter().position(|held| *held == word).unwrap_or_else(|| {
        entry.words.push(word);
        entry.words.len() - 1
    });
    place_of(entry.n_words, place)
}

fn long(entry: &mut Entry, value: i128) -> Result<Register, String> {
    let value = u64::try_from(value).or_else(|_| i64::try_from(value).map(i64::cast_unsigned));
    let value = value.map_err(|_| "an immediate has more than 64 bits".to_owned())?;
    let place = entry.longs.iter().position(|held| *held == value).unwrap_or_else(|| {
        entry.longs.push(value);
        entry.longs.len() - 1
    });
    place_of(entry.n_longs, place)
}

fn place_of(declared: Register, place: usize) -> Result<Register, String> {
    let place = Register::try_from(place).ok().and_then(|place| declared.checked_add(place));
    place.ok_or_else(|| "there are too many immediates".to_owned())
}

/// Parses `12`, `-3`, `0x1F` or `0f3F800000` to its bits.
pub fn immediate(text: &str) -> Result<i128, String> {
    let unknown = |_| format!("`{text}` is not an operand that is known");
    if let Some(bits) = text.strip_prefix("0f").or_else(|| text.strip_prefix("0F")) {
        return u32::from_str_radix(bits, 16).map(i128::from).map_err(unknown);
    }
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |digits| (-1, digits));
    let digits = digits.strip_suffix('U').unwrap_or(digits);
    match digits.strip_prefix("0x") {
        Some(digits) => i128::from_str_radix(digits, 16).map(|value| sign * value).map_err(unknown),
        None => digits.parse::<i128>().map(|value| sign * value).map_err(unknown),
    }
}

fn low32(value: i128) -> Result<u32, String> {
    let value = u32::try_from(value).or_else(|_| i32::try_from(value).map(i32::cast_unsigned));
    value.map_err(|_| "an immediate has more than 32 bits".to_owned())
}

fn low16(value: i128) -> u16 {
    u16::try_from(value & 0xffff).unwrap_or(0)
}
