//! Sizes and live memory of a mode as polynomials in the batch, the length and the rank of adapters.
//!
//! A run with few layers is derived once, with prime numbers in place of the three. The primes in a tensor's size show
//! its powers. Live memory grows linearly with the number of layers, and with the layer that allocates.

use std::collections::HashMap;

use crate::memory::{
    program::{Action, Phase, Program},
    stored::TensorTable,
};

/// Batch, length and rank of the derived run. The length is a multiple of 8, as attention kernels prefer; its prime is
/// 127. No size of a model is a multiple of a prime.
pub(super) const PROBE: [u64; 3] = [23, 8 * 127, 31];
const PRIMES: [u64; 3] = [23, 127, 31];

/// Largest power of each number, plus 1.
const POWERS: [usize; 3] = [3, 3, 2];
const N_TERMS: usize = POWERS[0] * POWERS[1] * POWERS[2];

/// A tensor's size: `factor * batch^i * length^j * rank^k` bytes, at the place of its powers among the terms.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Size {
    factor: f64,
    term: usize,
}

#[expect(clippy::cast_precision_loss, reason = "sizes are below 2^53")]
const fn number(n: u64) -> f64 {
    n as f64
}

impl Size {
    /// The size of which `bytes` is the value for [`PROBE`].
    fn of(bytes: u64) -> Self {
        let mut factor = number(bytes);
        let mut term = 0;
        for ((prime, n), powers) in PRIMES.into_iter().zip(PROBE).zip(POWERS) {
            let mut rest = bytes;
            let mut power = 0;
            while rest > 0 && rest.is_multiple_of(prime) && power + 1 < powers {
                rest /= prime;
                power += 1;
                factor /= number(n);
            }
            term = term * powers + power;
        }
        Self { factor, term }
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive whole number")]
    pub(super) fn bytes(self, terms: &[f64; N_TERMS]) -> u64 {
        (self.factor * terms[self.term]).round() as u64
    }
}

/// The value of each term.
pub(super) fn terms([batch, length, rank]: [u64; 3]) -> [f64; N_TERMS] {
    let mut terms = [1.0; N_TERMS];
    for (at, term) in terms.iter_mut().enumerate() {
        let (rest, k) = (at / POWERS[2], at % POWERS[2]);
        let (i, j) = (rest / POWERS[1], rest % POWERS[1]);
        for (n, power) in [(batch, i), (length, j), (rank, k)] {
            for _ in 0..power {
                *term *= number(n);
            }
        }
    }
    terms
}

/// Live memory in bytes: the coefficient of each term.
type Live = [f64; N_TERMS];

fn at(live: &Live, terms: &[f64; N_TERMS]) -> f64 {
    live.iter().zip(terms).map(|(coefficient, term)| coefficient * term).sum()
}

/// An allocation: its phase, code, position among those of the same phase, code and layer, and layer.
type Place = (Phase, u16, u16, Option<u64>);

/// Sizes of a run's tensors by code, and the live memory before some allocations.
pub(super) struct Walk {
    names: Vec<String>,
    sizes: Vec<Size>,
    live: HashMap<Place, Live>,
    /// What the first step leaves: the state of the optimizer.
    state: Live,
}

impl Walk {
    /// Reads a program of [`PROBE`] with one step. Keeps the allocations whose size may be requested. `None` if it is a
    /// program of nanoGPT.
    pub(super) fn of(program: &Program, may_be_requested: impl Fn(Size) -> bool) -> Option<Self> {
        let TensorTable::Derived(tensors) = &program.tensors else { return None };
        let sizes: Vec<Size> = tensors.iter().map(|tensor| Size::of(tensor.bytes)).collect();
        let is_kept: Vec<bool> = sizes.iter().map(|size| may_be_requested(*size)).collect();
        let names = tensors.iter().map(|tensor| tensor.name.clone()).collect();
        let mut slots: Vec<Option<Size>> = vec![None; program.n_slots];
        let (mut live, mut before_step) = ([0.0; N_TERMS], None);
        let mut places = HashMap::new();
        let mut counts: HashMap<(Phase, u16, Option<u64>), u16> = HashMap::new();
        for (phase, id) in program.schedule.iter().flat_map(|entry| &entry.sections) {
            if *phase == Phase::FirstForward {
                before_step.get_or_insert(live);
            }
            let section = &program.sections[id.index()];
            for event in &section.events {
                let slot = &mut slots[event.slot().index()];
                if let Some(size) = slot.take() {
                    live[size.term] -= size.factor;
                }
                let Action::Alloc(code, layer) = event.action() else { continue };
                let Some(size) = sizes.get(usize::from(code)) else { continue };
                if is_kept[usize::from(code)] {
                    let count = counts.entry((*phase, code, layer)).or_default();
                    places.insert((*phase, code, *count, layer), live);
                    *count = count.saturating_add(1);
                }
                live[size.term] += size.factor;
                *slot = Some(*size);
            }
            for (from, to) in &section.renames {
                slots[to.index()] = slots[from.index()].take();
            }
        }
        let state = difference(&live, &before_step.unwrap_or(live), 1.0);
        Some(Self { names, sizes, live: places, state })
    }
}

/// The growth of a mode with its layers.
pub(super) struct Growth {
    layers: f64,
    places: Vec<Growing>,
    state: [Live; 2],
}

/// An allocation outside of layers or in the first one.
struct Growing {
    phase: Phase,
    size: Size,
    is_in_layer: bool,
    live: Live,
    /// Growth of `live` with each layer of the model.
    with_layers: Live,
    /// Growth of `live` with each layer before the one that allocates.
    before_layer: Live,
}

impl Growth {
    /// Compares runs of few layers.
    pub(super) fn of([few_layers, layers]: [u64; 2], few: &Walk, more: &Walk) -> Self {
        let share = 1.0 / number(layers - few_layers);
        let of_few = |code: usize| {
            let same = |(name, size): (&String, &Size)| *name == more.names[code] && *size == more.sizes[code];
            few.names.iter().zip(&few.sizes).position(same).and_then(|code| u16::try_from(code).ok())
        };
        let mut places = Vec::new();
        for ((phase, code, count, layer), live) in &more.live {
            if !matches!(layer, None | Some(0)) {
                continue;
            }
            let before = of_few(usize::from(*code)).and_then(|code| few.live.get(&(*phase, code, *count, *layer)));
            let Some(before) = before else { continue };
            let later = layer.and_then(|_| more.live.get(&(*phase, *code, *count, Some(2))));
            places.push(Growing {
                phase: *phase,
                size: more.sizes[usize::from(*code)],
                is_in_layer: layer.is_some(),
                live: *live,
                with_layers: difference(live, before, share),
                before_layer: later.map_or([0.0; N_TERMS], |later| difference(later, live, 0.5)),
            });
        }
        Self { layers: number(layers), places, state: [more.state, difference(&more.state, &few.state, share)] }
    }

    /// Whether a run of `layers` layers may hold `near` bytes, within `tolerance`, when it allocates a tensor whose size
    /// satisfies `asks`, in one of `phases`. Later steps also hold what the first one leaves.
    pub(super) fn may_hold(
        &self,
        terms: &[f64; N_TERMS],
        layers: u64,
        asks: impl Fn(u64) -> bool,
        phases: Option<&[Phase]>,
        (near, tolerance): (u64, u64),
    ) -> bool {
        let further = number(layers) - self.layers;
        let is_near = |live: f64| (live - number(near)).abs() <= number(tolerance);
        let state = at(&self.state[0], terms) + further * at(&self.state[1], terms);
        self.places.iter().any(|place| {
            if phases.is_some_and(|phases| !phases.contains(&place.phase)) || !asks(place.size.bytes(terms)) {
                return false;
            }
            let first = at(&place.live, terms) + further * at(&place.with_layers, terms);
            let step = at(&place.before_layer, terms);
            let n_layers = if place.is_in_layer { layers } else { 1 };
            (0..n_layers).map(|layer| first + number(layer) * step).any(|live| is_near(live) || is_near(live + state))
        })
    }
}

fn difference(later: &Live, earlier: &Live, share: f64) -> Live {
    std::array::from_fn(|term| (later[term] - earlier[term]) * share)
}
