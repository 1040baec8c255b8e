//! nanochat's `MuonAdamW` on one GPU.
//!
//! Buffers of the compiled Muon kernel follow a snapshot of an H200 with PyTorch 2.11.

use std::collections::BTreeMap;

use crate::{
    dtype::Dtype,
    gpt::tensors::Category,
    torch::{Tensor, Torch},
};

/// State of the optimizer.
#[derive(Default)]
pub struct MuonAdamW {
    state: Vec<Tensor>,
}

/// Matrices of one shape, which a kernel updates together.
#[derive(Clone, Copy)]
struct Group {
    n: u64,
    rows: u64,
    columns: u64,
}

impl Group {
    fn stacked(self, torch: &Torch, name: &'static str, dtype: Dtype) -> Tensor {
        torch.empty(name, &[self.n, self.rows, self.columns], dtype)
    }

    /// Buffers of the compiled kernel.
    fn update(self, torch: &Torch) {
        let d = self.rows.min(self.columns);
        let full = || self.stacked(torch, "Muon buffer", Dtype::Bfloat16);
        let square = || torch.empty("Muon product", &[self.n, d, d], Dtype::Bfloat16);
        let _before = [full(), full()];
        if self.rows == self.columns {
            let _products = [(); 4].map(|()| square());
        } else {
            let _products = [square(), square()];
            let _after = [full(), full(), full()];
        }
    }
}

impl MuonAdamW {
    /// `optimizer.step()`: stacks all gradients first, and holds them and the stacked parameters to the end.
    pub fn step<'a>(
        &mut self,
        torch: &Torch,
        others: impl Iterator<Item = &'a Tensor>,
        matrices: impl Iterator<Item = &'a Tensor>,
    ) {
        let _module = torch.enter("optimizer");
        let _category = torch.enter_category(Category::OptimizerState);
        let mut groups = BTreeMap::new();
        for matrix in matrices {
            *groups.entry([1, 0].map(|n| matrix.layout().from_last(n))).or_insert(0) += 1;
        }
        let groups: Vec<_> = groups.into_iter().map(|([rows, columns], n)| Group { n, rows, columns }).collect();
        let is_first = self.state.is_empty();
        let stacked = |group: &Group, name| group.stacked(torch, name, Dtype::Float32);
        let _gradients: Vec<_> = groups.iter().map(|group| stacked(group, "stacked gradients")).collect();
        if is_first {
            for parameter in others {
                let moment = |name| torch.optimizer_state(name, parameter.sizes(), parameter.dtype(), Some(parameter));
                self.state.extend(["exp_avg", "exp_avg_sq"].map(moment));
            }
        }
        let mut held = Vec::new();
        for group in &groups {
            if is_first {
                let second = group.n * group.rows.max(group.columns);
                let sizes = [group.n, group.rows, group.columns];
                self.state.push(torch.optimizer_state("momentum_buffer", &sizes, Dtype::Float32, None));
                self.state.push(torch.optimizer_state("second_momentum_buffer", &[second], Dtype::Float32, None));
            }
            held.push(stacked(group, "stacked parameters"));
            group.update(torch);
        }
    }
}
