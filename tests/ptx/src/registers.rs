//! The registers of a warp: 32 lanes each, and a bit per lane for whether it is initialised.

use crate::program::Register;

/// Lanes per warp.
pub const LANES: usize = 32;
/// The mask of all lanes.
pub const ALL: u32 = u32::MAX;

/// One value per lane.
pub type Lanes<T> = [T; LANES];

/// The lanes of a mask, in ascending order.
pub fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

/// The registers of one width.
#[derive(Debug)]
pub struct Registers<T> {
    values: Vec<Lanes<T>>,
    defined: Vec<u32>,
    /// The number of writable registers, which precede the constants.
    declared: usize,
}

impl<T: Copy + Default> Registers<T> {
    /// Creates uninitialised registers, followed by constants.
    pub fn new(declared: Register, constants: usize) -> Self {
        let declared = usize::from(declared);
        let n = declared + constants;
        Self { values: vec![[T::default(); LANES]; n], defined: vec![0; n], declared }
    }

    /// Marks all writable registers as uninitialised.
    pub fn forget(&mut self) {
        self.defined[..self.declared].fill(0);
    }

    pub fn set_constant(&mut self, number: usize, values: Lanes<T>) {
        self.values[self.declared + number] = values;
        self.defined[self.declared + number] = ALL;
    }

    /// The values of all lanes of a register.
    pub fn get(&self, register: Register) -> &Lanes<T> {
        &self.values[usize::from(register)]
    }

    /// The mask of a register's initialised lanes.
    pub fn defined(&self, register: Register) -> u32 {
        self.defined[usize::from(register)]
    }

    /// Writes the active lanes.
    pub fn set(&mut self, register: Register, active: u32, values: &Lanes<T>, defined: u32) {
        let register = usize::from(register);
        let to = &mut self.values[register];
        if active == ALL {
            *to = *values;
        } else {
            for (lane, (to, value)) in to.iter_mut().zip(values).enumerate() {
                if active >> lane & 1 == 1 {
                    *to = *value;
                }
            }
        }
        self.defined[register] = (self.defined[register] & !active) | (defined & active);
    }
}

/// The predicate registers, with one bit per lane.
#[derive(Debug, Default)]
pub struct PredicateRegisters {
    values: Vec<u32>,
    defined: Vec<u32>,
}

impl PredicateRegisters {
    /// Creates uninitialised predicates.
    pub fn new(n: Register) -> Self {
        Self { values: vec![0; usize::from(n)], defined: vec![0; usize::from(n)] }
    }

    /// Marks all predicates as uninitialised.
    pub fn forget(&mut self) {
        self.defined.fill(0);
    }

    /// The mask of lanes in which a predicate is true.
    pub fn get(&self, register: Register) -> u32 {
        self.values[usize::from(register)]
    }

    /// The mask of a predicate's initialised lanes.
    pub fn defined(&self, register: Register) -> u32 {
        self.defined[usize::from(register)]
    }

    /// Writes the active lanes.
    pub fn set(&mut self, register: Register, active: u32, values: u32, defined: u32) {
        let register = usize::from(register);
        self.values[register] = (self.values[register] & !active) | (values & active);
        self.defined[register] = (self.defined[register] & !active) | (defined & active);
    }
}

/// Applies a function to each lane's value.
pub fn map<T: Copy, U: Copy + Default>(a: &Lanes<T>, of: impl Fn(T) -> U) -> Lanes<U> {
    let mut out = [U::default(); LANES];
    for lane in 0..LANES {
        out[lane] = of(a[lane]);
    }
    out
}

/// Applies a function to each lane's pair of values.
pub fn zip<T: Copy, V: Copy, U: Copy + Default>(a: &Lanes<T>, b: &Lanes<V>, of: impl Fn(T, V) -> U) -> Lanes<U> {
    let mut out = [U::default(); LANES];
    for lane in 0..LANES {
        out[lane] = of(a[lane], b[lane]);
    }
    out
}

/// The mask of lanes for which a condition is true.
pub fn mask<T: Copy>(a: &Lanes<T>, b: &Lanes<T>, holds: impl Fn(T, T) -> bool) -> u32 {
    (0..LANES).fold(0, |mask, lane| mask | u32::from(holds(a[lane], b[lane])) << lane)
}
