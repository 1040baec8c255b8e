//! The optimizers: one row for each, with its state, the memory and time of a step, and its texts.
//!
//! Every other module reads the table: events, certainty, time, fixes, links, the command line and the page.

use serde::{Deserialize, Serialize};

use crate::{diff::Hunk, gpt::tensors::Role};
use headroom_text::{self as text, Key};

/// An optimizer and its memory, time and texts.
#[derive(Debug)]
pub struct OptimizerSpec {
    /// Name in links, and in the ids of fixes and code changes.
    pub id: &'static str,
    /// Value of `--optimizer`, also in JSON.
    pub name: &'static str,
    /// Translation key of the name.
    pub label: Key,
    /// State of each parameter, allocated in this order in the first step.
    pub states: &'static [Role],
    /// State of large parameters, in place of `states`.
    pub quantised: Option<QuantisedState>,
    /// Temporary of a `foreach` implementation: one for each parameter of a group, all at once.
    pub foreach_temporary: Option<Role>,
    /// Whether fused kernels perform the step: they unscale gradients, and keep step counts in GPU memory.
    pub is_fused: bool,
    /// Bytes per parameter that a step reads and writes.
    pub step_bytes: f64,
    /// Host seconds of a step per parameter tensor.
    pub host_seconds: f64,
    /// Whether recorded runs confirm the figures; otherwise they are estimates from the library's code.
    pub is_recorded: bool,
    /// Change of nanoGPT's code that selects the optimizer, if it needs one.
    pub code: Option<OptimizerCode>,
    /// Translation key of the reason why a run that does not fit should switch to it. `None`: never recommended.
    pub reason: Option<Key>,
}

/// State in fewer bits than float32.
#[derive(Debug)]
pub struct QuantisedState {
    /// Minimum number of elements; smaller parameters keep the float32 state.
    pub min_elements: u64,
    /// State of each parameter.
    pub states: &'static [Role],
}

/// A change of nanoGPT's code that selects an optimizer.
#[derive(Debug)]
pub struct OptimizerCode {
    /// Lines of Python; a comment in them names their place.
    pub by_hand: &'static str,
    /// The same change of model.py as a hunk.
    pub hunk: Hunk,
}

/// An optimizer from the Python package `$package`, created by the expression `$call`.
macro_rules! code {
    ($package:literal, $call:literal) => {
        Some(OptimizerCode {
            by_hand: concat!(
                "# pip install ",
                $package,
                "; model.py, configure_optimizers: in the place of torch.optim.AdamW\nimport ",
                $package,
                "\noptimizer = ",
                $call
            ),
            hunk: Hunk {
                line: 283,
                before: "        extra_args = dict(fused=True) if use_fused else dict()",
                body: &[
                    "-        optimizer = torch.optim.AdamW(optim_groups, lr=learning_rate, betas=betas, **extra_args)",
                    concat!("+        import ", $package, " # pip install ", $package),
                    concat!("+        optimizer = ", $call),
                ],
                after: "        print(f\"using fused AdamW: {use_fused}\")",
            },
        })
    };
}

macro_rules! optimizers {
    ($($(#[$attribute:meta])* $name:ident $row:tt)*) => {
        /// An optimizer, in the order of the page's list.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Optimizer { $($(#[$attribute])* $name,)* }

        impl Optimizer {
            /// Every optimizer.
            pub const ALL: &[Self] = &[$(Self::$name),*];
        }

        static TABLE: &[OptimizerSpec] = &[$(OptimizerSpec $row),*];
    };
}

optimizers! {
    /// `torch.optim.AdamW(fused=True)`, nanoGPT's choice on a GPU.
    #[default]
    AdamwFused {
        id: "adamw_fused",
        name: "adamw-fused",
        label: text::OPTIMIZER_FUSED,
        states: &[Role::ExpAvg, Role::ExpAvgSq],
        quantised: None,
        foreach_temporary: None,
        is_fused: true,
        // Four reads and three writes of float32.
        step_bytes: 28.0,
        host_seconds: 10e-6,
        is_recorded: true,
        code: None,
        reason: None,
    }
    /// `torch.optim.AdamW(foreach=True)`, PyTorch's default if fused is off.
    AdamwForeach {
        id: "adamw_foreach",
        name: "adamw-foreach",
        label: text::OPTIMIZER_FOREACH,
        states: &[Role::ExpAvg, Role::ExpAvgSq],
        quantised: None,
        // The square roots of the second moments.
        foreach_temporary: Some(Role::Denominator),
        is_fused: false,
        // One operation at a time. The difference to the fused kernel explains the A100 ladder's 93 to 90 ms.
        step_bytes: 80.0,
        host_seconds: 20e-6,
        is_recorded: false,
        code: None,
        reason: None,
    }
    /// bitsandbytes' `AdamW8bit`: one byte per moment, in blocks with a float32 scale.
    Adamw8bit {
        id: "adamw_8bit",
        name: "adamw-8bit",
        label: text::SWITCH_ADAMW_8BIT,
        states: &[Role::ExpAvg, Role::ExpAvgSq],
        // Source: `Optimizer2State.init_state` and `min_8bit_size` in bitsandbytes/optim/optimizer.py.
        quantised: Some(QuantisedState {
            min_elements: 4096,
            states: &[Role::State1, Role::State2, Role::Absmax, Role::Absmax],
        }),
        foreach_temporary: None,
        is_fused: false,
        // The speed of a fused float32 step, since bitsandbytes searches its code book, with a kernel per tensor.
        step_bytes: 28.0,
        host_seconds: 40e-6,
        is_recorded: false,
        code: code!(
            "bitsandbytes",
            "bitsandbytes.optim.AdamW8bit(optim_groups, lr=learning_rate, betas=betas)"
        ),
        reason: Some(text::WHY_ADAMW_8BIT),
    }
}

impl Optimizer {
    /// Row of the table.
    #[must_use]
    pub const fn spec(self) -> &'static OptimizerSpec {
        &TABLE[self as usize]
    }
}

impl OptimizerSpec {
    /// State of a parameter with `n_elements` elements.
    #[must_use]
    pub fn states_of(&self, n_elements: u64) -> &'static [Role] {
        match &self.quantised {
            Some(quantised) if n_elements >= quantised.min_elements => quantised.states,
            _ => self.states,
        }
    }

    /// Maximum number of tensors per parameter, with the step count.
    #[must_use]
    pub fn n_states(&self) -> usize {
        1 + self.states.len().max(self.states_of(u64::MAX).len())
    }
}
