//! The training backward: allocates gradients of weights as they are computed, and reuses dead buffers for the rest.

use super::{
    BufferUse, CompiledSavedTensors, SavedBlock, SavedBlocks, SavedEmbedding, attention,
    block::{self, Block, Context, FusedDropout, Sum},
    loss,
    residual::Residual,
    saved::inputs,
    wrapper::{Buf, Graph},
};
use crate::{
    gpt::tensors::Tensor,
    memory::{
        context::{Name, Run, uses_scaler},
        program::Slot,
    },
    train_config::CrossEntropy,
};

/// Writes the backward of one micro-step; with `accumulates`, gradients of an earlier micro-step exist.
pub(in crate::memory) fn backward(run: &mut Run<'_>, saved: Option<CompiledSavedTensors>, accumulates: bool) {
    let Some(saved) = saved else { return };
    let scaled_loss = uses_scaler(run.train).then(|| {
        if !std::mem::replace(&mut run.has_scaler, true) {
            run.w.alloc_in(run.name(Name::Scaler), Tensor::Scaler, None);
            run.w.alloc_in(run.name(Name::ScalerGrowth), Tensor::ScalerGrowth, None);
        }
        run.w.alloc(Tensor::Scalar, None)
    });
    let ones = run.w.alloc(Tensor::Scalar, None);
    let scaled = uses_scaler(run.train).then(|| run.w.alloc(Tensor::Scalar, None));
    let divided = run.w.alloc(Tensor::Scalar, None);
    run.w.free_some(scaled);
    // The model returns its logits, so their gradient is an argument of the graph: all zeros.
    let tangent = run.keeps_logits().then(|| run.w.alloc(Tensor::ZeroTangent, None));
    let mut backward = Backward {
        graph: Graph::new(),
        gradients: Vec::new(),
        parameter: run.parameters.len(),
        has_bias: run.config.bias(),
        is_half: run.train.is_half(),
        run,
        accumulates,
        embedded: Vec::new(),
        first_norm: Vec::new(),
    };
    backward.whole(&saved, tangent);
    let Backward { graph, gradients, run, .. } = backward;
    let slots = graph.write(run, true);
    if accumulates {
        // Added to the existing gradients in parameter order, then freed.
        run.w.free_all(gradients.into_iter().rev().filter_map(|gradient| slots.of(gradient)));
    }
    run.w.free_some(tangent);
    run.w.free_all([divided, ones]);
    run.w.free_some(scaled_loss);
}

struct Backward<'r, 'a> {
    run: &'r mut Run<'a>,
    graph: Graph,
    accumulates: bool,
    gradients: Vec<Buf>,
    /// Index of the next parameter, counting down: gradients are computed in reverse parameter order.
    parameter: usize,
    has_bias: bool,
    is_half: bool,
    /// With checkpointing: the embeddings as inputs, and the recomputed first norm.
    embedded: Vec<Buf>,
    first_norm: Vec<(Tensor, Buf)>,
}

/// Gradient of the residual stream, and the same gradient as the next branch reads it.
struct Stream {
    gradient: Buf,
    branch: Buf,
}

impl Backward<'_, '_> {
    fn whole(&mut self, saved: &CompiledSavedTensors, tangent: Option<Slot>) {
        let (dlm_head, dlnf, late_lm_head) = match self.run.train.cross_entropy {
            CrossEntropy::Whole => self.whole_loss(saved, tangent),
            CrossEntropy::Chunked => {
                let g = &mut self.graph;
                let lnf_out = g.input(Tensor::LnfOut, saved.lnf_out);
                let weight = saved.wte_cast.map(|slot| g.input(Tensor::WteCast, slot));
                let (dlm_head, dlnf) = loss::chunked_backward(self.run, g, lnf_out, weight);
                (dlm_head, dlnf, None)
            }
            CrossEntropy::Fused => {
                let made: Vec<_> = inputs(&mut self.graph, &saved.loss).into_iter().map(|(_, buf)| buf).collect();
                let lnf_out = self.graph.input(Tensor::LnfOut, saved.lnf_out);
                let weight = saved.wte_cast.map(|slot| self.graph.input(Tensor::WteCast, slot));
                // The loss's gradient scales the gradients from the forward in place.
                let reads: Vec<_> = made.iter().copied().chain([lnf_out]).chain(weight).collect();
                self.graph.kernel(&[], &reads);
                (made[0], made[1], None)
            }
        };
        if self.run.train.cross_entropy != CrossEntropy::Whole {
            let y = self.graph.input(Tensor::Y, self.run.name(Name::Y));
            self.graph.kernel(&[], &[y]);
        }
        let lnf = inputs(&mut self.graph, &saved.lnf);
        let stream = match &saved.blocks {
            SavedBlocks::Whole(blocks) => self.saved_blocks(blocks, dlnf, &lnf),
            SavedBlocks::Checkpointed(boundaries) => self.recomputed_blocks(saved, boundaries, dlnf, &lnf),
        };
        self.embeddings(saved, &stream, dlm_head, late_lm_head);
    }

    /// Backward of a loss over all tokens at once: the gradients of lm_head's weight and of its input. If the weight's
    /// product is delayed to the end, also returns its operands.
    fn whole_loss(&mut self, saved: &CompiledSavedTensors, tangent: Option<Slot>) -> (Buf, Buf, Option<(Buf, Buf)>) {
        let g = &mut self.graph;
        let logits = g.held(Tensor::Logits, self.run.name(Name::Logits));
        let zeros = tangent.map(|tangent| g.held(Tensor::ZeroTangent, tangent));
        let y = g.input(Tensor::Y, self.run.name(Name::Y));
        let of_loss: Vec<_> = inputs(g, &saved.loss).into_iter().map(|(_, buf)| buf).collect();
        let dlogits = g.planned(Tensor::DlogitsPadded, None);
        let reads: Vec<_> = of_loss.into_iter().chain([y, logits]).chain(zeros).collect();
        g.kernel(&[dlogits], &reads);
        let lnf_out = g.input(Tensor::LnfOut, saved.lnf_out);
        let dlm_head = g.planned(if self.is_half { Tensor::DlmHeadCast } else { Tensor::DlmHead }, None);
        if self.is_half {
            g.kernel(&[dlm_head], &[dlogits, lnf_out]).product();
        }
        let dlnf = g.planned(Tensor::DlnfCast, None);
        let weight = saved.wte_cast.map(|slot| g.input(Tensor::WteCast, slot));
        let reads: Vec<_> = [dlogits].into_iter().chain(weight).collect();
        g.kernel(&[dlnf], &reads).product();
        // In float32 no cast depends on the product, and Inductor schedules this unneeded product last.
        (dlm_head, dlnf, (!self.is_half).then_some((dlogits, lnf_out)))
    }

    fn saved_blocks(&mut self, saved: &[SavedBlock], dlnf: Buf, lnf: &[(Tensor, Buf)]) -> Stream {
        let blocks: Vec<_> = saved.iter().map(|block| block.enter(&mut self.graph)).collect();
        let mask_of = |index: Option<usize>| blocks.get(index?).and_then(|block| block.fcproj_mask);
        let mut stream = self.norm(None, lnf, dlnf, None, mask_of(blocks.len().checked_sub(1)));
        for (index, block) in blocks.iter().enumerate().rev() {
            stream = self.block(index as u64, block, &stream, mask_of(index.checked_sub(1)));
        }
        stream
    }

    /// Recomputes each block just before its backward, from the residual stream that entered it.
    fn recomputed_blocks(
        &mut self,
        saved: &CompiledSavedTensors,
        boundaries: &[Slot],
        dlnf: Buf,
        lnf: &[(Tensor, Buf)],
    ) -> Stream {
        let seeds = self.run.drops().then(|| self.graph.planned(Tensor::DropoutSeeds, None));
        let embedded = match &saved.embedding {
            SavedEmbedding::Parts { terms, .. } | SavedEmbedding::Normalized { saved: terms, .. } => {
                inputs(&mut self.graph, terms)
            }
        };
        self.embedded = embedded.iter().map(|&(_, buf)| buf).collect();
        let mut stream: Option<Stream> = None;
        let n_layer = boundaries.len() + 1;
        for index in (0..n_layer).rev() {
            let is_last = index + 1 == n_layer;
            let terms = match index.checked_sub(1).and_then(|below| boundaries.get(below)) {
                Some(&slot) => vec![self.graph.input(Tensor::Residual, slot)],
                None => self.embedded.clone(),
            };
            let reads = terms.len();
            let mut residual = Residual::starting(terms, reads);
            let layer = index as u64;
            let ctx = Context { run: self.run, at: Some(layer), keeps: BufferUse::InGraph };
            let rows = [Tensor::Xhat1, Tensor::Ln1Mean, Tensor::Ln1Rstd, Tensor::Ln1Out];
            let g = &mut self.graph;
            let ln1 = block::norm(g, ctx, rows, &mut residual, FusedDropout { mask: None, seeds }, Sum::WhenRead);
            let how = (BufferUse::InGraph, is_last);
            let mut block = block::write(self.run, g, layer, (ln1.out, &mut residual), seeds, how);
            block.ln1 = Some(ln1.saved);
            let above = match stream.take() {
                Some(stream) => stream,
                None => {
                    let mut reads = lnf.to_vec();
                    reads.extend(residual.summed().reads.iter().map(|&term| (Tensor::Residual, term)));
                    self.norm(None, &reads, dlnf, None, block.fcproj_mask)
                }
            };
            if index == 0 {
                // The embeddings' kernel computes the rest.
                self.first_norm = block.ln1.take().unwrap_or_default();
            }
            stream = Some(self.block(layer, &block, &above, None));
        }
        stream.unwrap_or(Stream { gradient: dlnf, branch: dlnf })
    }

    /// Gradient of a parameter: an output of the graph.
    fn gradient(&mut self, tensor: Tensor, layer: Option<u64>, parameter: usize) -> Buf {
        let buf = self.graph.planned(tensor, layer);
        if self.accumulates {
            self.graph.keep(buf);
            self.gradients.push(buf);
        } else {
            self.graph.keep_in(buf, self.run.gradient(parameter));
        }
        buf
    }

    fn next_parameters(&mut self, n: usize) -> usize {
        self.parameter = self.parameter.saturating_sub(n);
        self.parameter
    }

    /// A layer norm's backward: adds to the stream's gradient, and computes the weight's gradients by partial sums.
    fn norm(
        &mut self,
        at: Option<u64>,
        saved: &[(Tensor, Buf)],
        dout: Buf,
        stream: Option<Buf>,
        mask: Option<Buf>,
    ) -> Stream {
        let saved: Vec<_> = saved.iter().map(|&(_, buf)| buf).collect();
        let g = &mut self.graph;
        let gradient = g.planned(Tensor::Dresidual, at);
        let separate = self.is_half || mask.is_some();
        let branch = if separate { g.planned(Tensor::DresidualCast, at) } else { gradient };
        let outputs: Vec<_> = if separate { vec![gradient, branch] } else { vec![gradient] };
        let reads: Vec<_> = [dout].into_iter().chain(saved.iter().copied()).chain(stream).chain(mask).collect();
        let sources: Vec<_> = stream.into_iter().collect();
        g.kernel(&outputs, &reads).in_place(gradient, &sources);
        // The weight's gradient reads the normalised stream again, or all terms if it is not stored.
        let again = if saved.len() > 2 { saved } else { saved.into_iter().take(1).collect() };
        self.norm_gradients(at, dout, &again);
        Stream { gradient, branch }
    }

    /// Gradients of a norm's weight and bias, summed over the tokens in two steps.
    fn norm_gradients(&mut self, at: Option<u64>, dout: Buf, saved: &[Buf]) {
        let n = if self.has_bias { 2 } else { 1 };
        let first = self.next_parameters(n);
        let partials: Vec<_> = (0..n).map(|_| self.graph.planned(Tensor::NormPartials, at)).collect();
        let reads: Vec<_> = [dout].into_iter().chain(saved.iter().copied()).collect();
        self.graph.kernel(&partials, &reads);
        for (index, partial) in partials.into_iter().enumerate() {
            let gradient = self.gradient(Tensor::DvecC, at, first + index);
            self.graph.kernel(&[gradient], &[partial]);
        }
    }

    /// A block's backward; `below` is the dropout mask of the last branch before the block.
    fn block(&mut self, layer: u64, saved: &Block, stream: &Stream, below: Option<Buf>) -> Stream {
        let at = Some(layer);
        let fc_proj = Linear {
            weight: saved.fc_proj_weight,
            dinput: Tensor::DfchGelu,
            dweight: [Tensor::DfcProjWCast, Tensor::DfcProjW],
            dbias: Tensor::DvecC,
            partials: Tensor::NormPartials,
        };
        let dgelu = self.linear(at, stream.branch, saved.fch_gelu, &fc_proj);
        let dfch = self.graph.planned(Tensor::Dfch, at);
        self.graph.kernel(&[dfch], &[dgelu, saved.fch]).in_place(dfch, &[dgelu]);
        let fc = Linear {
            weight: saved.fc_weight,
            dinput: Tensor::Dln2Cast,
            dweight: [Tensor::DfcWCast, Tensor::DfcW],
            dbias: Tensor::DvecC4,
            partials: Tensor::FcBiasPartials,
        };
        let dln2 = self.linear(at, dfch, saved.ln2_out, &fc);
        let stream = self.norm(at, &saved.ln2, dln2, Some(stream.gradient), saved.attproj_mask);

        let att_proj = Linear {
            weight: saved.att_proj_weight,
            dinput: Tensor::Datty,
            dweight: [Tensor::DattProjWCast, Tensor::DattProjW],
            dbias: Tensor::DvecC,
            partials: Tensor::NormPartials,
        };
        let datty = self.linear(at, stream.branch, saved.attention.out.1, &att_proj);
        let dqkv = attention::backward(self.run, &mut self.graph, layer, datty, &saved.attention);
        let qkv = Linear {
            weight: saved.qkv_weight,
            dinput: Tensor::Dln1Cast,
            dweight: [Tensor::DqkvWCast, Tensor::DqkvW],
            dbias: Tensor::DvecC3,
            partials: Tensor::QkvBiasPartials,
        };
        let dln1 = self.linear(at, dqkv, saved.ln1_out, &qkv);
        match &saved.ln1 {
            Some(ln1) => self.norm(at, ln1, dln1, Some(stream.gradient), below),
            // The embeddings' kernel includes the first norm.
            None => Stream { gradient: stream.gradient, branch: dln1 },
        }
    }

    /// A linear layer's backward: returns the gradient of its input; the gradients of weight and bias are outputs.
    fn linear(&mut self, at: Option<u64>, dout: Buf, input: Buf, rows: &Linear) -> Buf {
        let weight_index = self.next_parameters(if self.has_bias { 2 } else { 1 });
        let [narrow, wide] = rows.dweight;
        let dinput = self.graph.planned(rows.dinput, at);
        let dweight = if self.is_half { self.graph.planned(narrow, at) } else { self.gradient(wide, at, weight_index) };
        let dinput_reads: Vec<_> = [dout].into_iter().chain(rows.weight).collect();
        // `mm` computes the weight's gradient first, `addmm` the input's.
        if self.has_bias {
            self.graph.kernel(&[dinput], &dinput_reads).product();
            self.graph.kernel(&[dweight], &[dout, input]).product();
            self.bias_gradient(at, dout, rows, weight_index + 1);
        } else {
            self.graph.kernel(&[dweight], &[dout, input]).product();
            self.graph.kernel(&[dinput], &dinput_reads).product();
        }
        if self.is_half {
            let gradient = self.gradient(wide, at, weight_index);
            self.graph.kernel(&[gradient], &[dweight]);
        }
        dinput
    }

    fn bias_gradient(&mut self, at: Option<u64>, dout: Buf, rows: &Linear, parameter: usize) {
        let partial = self.graph.planned(rows.partials, at);
        let gradient = self.gradient(rows.dbias, at, parameter);
        if self.run.bytes.of(rows.partials.into()) == self.run.bytes.of(rows.dbias.into()) {
            self.graph.kernel(&[gradient], &[dout]);
            return;
        }
        self.graph.kernel(&[partial], &[dout]);
        self.graph.kernel(&[gradient], &[partial]);
    }

    fn embeddings(&mut self, saved: &CompiledSavedTensors, stream: &Stream, dlm_head: Buf, late: Option<(Buf, Buf)>) {
        let g = &mut self.graph;
        let x = g.input(Tensor::X, self.run.name(Name::X));
        let dwte = g.planned(Tensor::DwteEmbedding, None);
        g.kernel(&[dwte], &[]);
        let gradient = g.planned(Tensor::Dresidual, None);
        let (terms, mask) = match &saved.embedding {
            SavedEmbedding::Parts { terms, mask } | SavedEmbedding::Normalized { saved: terms, mask } => (terms, mask),
        };
        let mask = mask.map(|slot| g.input(Tensor::EncodedMask, slot));
        // A recomputed block has these as inputs already.
        let statistics: Vec<_> = if self.embedded.is_empty() {
            inputs(g, terms).into_iter().map(|(_, buf)| buf).collect()
        } else {
            self.first_norm.iter().map(|&(_, buf)| buf).chain(self.embedded.iter().copied()).collect()
        };
        let mut reads = vec![stream.gradient, stream.branch, x, dwte];
        reads.extend(statistics.iter().copied().chain(mask));
        g.kernel(&[gradient], &reads).in_place(gradient, &[stream.gradient]);
        let n = if self.has_bias { 2 } else { 1 };
        let first = self.next_parameters(n);
        let partials: Vec<_> = (0..n).map(|_| self.graph.planned(Tensor::NormPartials, Some(0))).collect();
        let mut reads = vec![stream.branch];
        reads.extend(statistics);
        self.graph.kernel(&partials, &reads);
        for (index, partial) in partials.into_iter().enumerate() {
            let gradient = self.gradient(Tensor::DvecC, Some(0), first + index);
            self.graph.kernel(&[gradient], &[partial]);
        }
        let pos = self.graph.input(Tensor::Pos, saved.pos);
        let dwpe = self.gradient(Tensor::Dwpe, None, 1);
        self.graph.kernel(&[dwpe], &[gradient, pos]);
        if let Some((dlogits, lnf_out)) = late {
            self.graph.kernel(&[dlm_head], &[dlogits, lnf_out]).product();
            let total = self.gradient(Tensor::Dwte, None, 0);
            self.graph.kernel(&[total], &[dlm_head, dwte]).in_place(total, &[dlm_head]);
            return;
        }
        let total = self.gradient(Tensor::Dwte, None, 0);
        self.graph.kernel(&[total], &[dlm_head, dwte]);
    }
}

/// Table rows of a linear layer's gradients.
struct Linear {
    weight: Option<Buf>,
    dinput: Tensor,
    dweight: [Tensor; 2],
    dbias: Tensor,
    /// Partial sums of the bias's gradient.
    partials: Tensor,
}
