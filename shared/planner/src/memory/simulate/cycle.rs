//! Cycle detection for the rounds of a repeated turn.
//!
//! The allocator's two pools serve different requests and never exchange memory, so each has its own sequence of
//! states. Blocks of the large pool return to their places after a few rounds. In the small pool, the blocks of a batch
//! and of layer norms can move for a hundred rounds, in particular with expandable segments.

use crate::memory::program::Slot;

/// State that determines a pool's future: the block in each slot, and the pool's segments.
///
/// Free neighbours merge, so the used blocks and the segments determine the free blocks. A round that ends in the state
/// of an earlier round starts a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PoolState {
    /// Sum of [`digest`] over the turn's slots that hold a block of the large pool.
    pub(super) large_blocks: u64,
    /// The turn's slots that hold a block of the small pool, with address and size of the block.
    pub(super) small_blocks: Vec<(Slot, (u64, u64))>,
    /// Bytes of the pool's segments.
    pub(super) reserved_bytes: u64,
    /// Number of times that cached segments were released to the driver.
    pub(super) n_releases: u64,
}

/// States of a pool at the start of a turn and at the end of each round.
pub(super) struct History(Vec<PoolState>);

impl History {
    /// A history with the state at the start of a turn.
    pub(super) fn new(start: PoolState) -> Self {
        Self(vec![start])
    }

    /// Adds the state at the end of a round. Returns the state at the end of the turn, `rounds_left` rounds later, if the
    /// added state is an earlier one: the rounds between them repeat.
    pub(super) fn push(&mut self, state: PoolState, rounds_left: u64) -> Option<&PoolState> {
        let earlier = self.0.iter().rposition(|before| *before == state);
        let now = self.0.len();
        self.0.push(state);
        let earlier = earlier?;
        let rounds = rounds_left % u64::try_from(now - earlier).ok()?;
        self.0.get(if rounds == 0 { now } else { earlier + usize::try_from(rounds).ok()? })
    }

    /// Adds the state at the end of a round. Returns whether the turn ends in this state.
    pub(super) fn ends_in(&mut self, state: &PoolState, rounds_left: u64) -> bool {
        self.push(state.clone(), rounds_left) == Some(state)
    }
}

/// Hash of a slot and its block; the sum over all slots identifies a state.
pub(super) fn digest(slot: Slot, (address, size): (u64, u64)) -> u64 {
    // The finalizer of splitmix64.
    let mut mixed = address ^ size.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed = mixed.wrapping_add((slot.index() as u64).wrapping_mul(0xd6e8_feb8_6659_fd93));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
