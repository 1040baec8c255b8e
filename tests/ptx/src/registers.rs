//! A warp's registers: 32 lanes of each, and a bit for each lane that says whether anything was written to it.

use crate::program::Register;

/// Lanes of a warp.
pub const LANES: usize = 32;
/// All lanes.
pub const ALL: u32 = u32::MAX;

/// A value of each lane.
pub type Lanes<T> = [T; LANES];

/// The lanes of a mask, from the lowest on.
pub fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..LANES).filter(move |lane| mask >> lane & 1 == 1)
}

/// Registers of one width.
#[derive(Debug)]
pub struct Registers<T> {
    values: Vec<Lanes<T>>,
    defined: Vec<u32>,
    /// Registers that instructions write; behind them lie those that hold constants.
    declared: usize,
}

impl<T: Copy + Default> Registers<T> {
    /// Undefined ones, and constants behind them.
    pub fn new(declared: Register, constants: usize) -> Self {
        let declared = usize::from(declared);
        let n = declared + constants;
        Self { values: vec![[T::default(); LANES]; n], defined: vec![0; n], declared }
    }

    /// Nothing was written to any but the constants.
    pub fn forget(&mut self) {
        self.defined[..self.declared].fill(0);
    }

    /// Gives a constant its values.
    pub fn set_constant(&mut self, number: usize, values: Lanes<T>) {
        self.values[self.declared + number] = values;
        self.defined[self.declared + number] = ALL;
    }

    /// All lanes of one.
    pub fn get(&self, register: Register) -> &Lanes<T> {
        &self.values[usize::from(register)]
    }

    /// The lanes that something was written to.
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

/// Predicates: a bit a lane.
#[derive(Debug, Default)]
pub struct Predicates {
    values: Vec<u32>,
    defined: Vec<u32>,
}

impl Predicates {
    /// Undefined ones.
    pub fn new(n: Register) -> Self {
        Self { values: vec![0; usize::from(n)], defined: vec![0; usize::from(n)] }
    }

    /// Nothing was written to any.
    pub fn forget(&mut self) {
        self.defined.fill(0);
    }

    /// The lanes in which it is true.
    pub fn get(&self, register: Register) -> u32 {
        self.values[usize::from(register)]
    }

    /// The lanes that something was written to.
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

/// A function of each lane's value.
pub fn map<T: Copy, U: Copy + Default>(a: &Lanes<T>, of: impl Fn(T) -> U) -> Lanes<U> {
    let mut out = [U::default(); LANES];
    for lane in 0..LANES {
        out[lane] = of(a[lane]);
    }
    out
}

/// Of each lane's two.
pub fn zip<T: Copy, V: Copy, U: Copy + Default>(a: &Lanes<T>, b: &Lanes<V>, of: impl Fn(T, V) -> U) -> Lanes<U> {
    let mut out = [U::default(); LANES];
    for lane in 0..LANES {
        out[lane] = of(a[lane], b[lane]);
    }
    out
}

/// A bit for each lane in which something holds.
pub fn mask<T: Copy>(a: &Lanes<T>, b: &Lanes<T>, holds: impl Fn(T, T) -> bool) -> u32 {
    (0..LANES).fold(0, |mask, lane| mask | u32::from(holds(a[lane], b[lane])) << lane)
}
