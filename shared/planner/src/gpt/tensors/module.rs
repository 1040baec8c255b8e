//! The part of nanoGPT's code to which a tensor belongs.

/// Module of the model, or part of the training loop, that makes a tensor. A gradient and an optimizer's state belong to
/// the module of their parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Module {
    /// The forward function of the model.
    Transformer,
    Wte,
    Wpe,
    Drop,
    /// The forward function of a block, or one of several modules of it.
    Block,
    Ln1,
    Attn,
    Ln2,
    Mlp,
    LnF,
    /// One of several modules of a block, or the final layer norm outside of a block.
    Norm,
    LmHead,
    Loss,
    Optimizer,
    TrainPy,
    Ddp,
    Cublas,
}

/// Path of a name within block `block`, or the name alone.
pub(super) fn in_block(block: Option<&str>, name: &str) -> String {
    match block {
        Some(block) => ["transformer.h.", block, ".", name].concat(),
        None => name.to_owned(),
    }
}

impl Module {
    /// Name as in `named_modules` of PyTorch, or the name of a part outside of the model.
    pub(super) fn name(self, block: Option<&str>) -> String {
        let name = match self {
            Self::Transformer => "transformer",
            Self::Wte => "transformer.wte",
            Self::Wpe => "transformer.wpe",
            Self::Drop => "transformer.drop",
            Self::LmHead => "lm_head",
            Self::Loss => "loss",
            Self::Optimizer => "optimizer",
            Self::TrainPy => "train.py",
            Self::Ddp => "DDP",
            Self::Cublas => "cuBLAS",
            Self::LnF => "transformer.ln_f",
            Self::Norm if block.is_none() => "transformer.ln_f",
            // Scratch memory that all blocks share.
            _ if block.is_none() => "transformer.h",
            Self::Ln1 => return in_block(block, "ln_1"),
            Self::Attn => return in_block(block, "attn"),
            Self::Ln2 => return in_block(block, "ln_2"),
            Self::Mlp => return in_block(block, "mlp"),
            Self::Block | Self::Norm => return in_block(block, "").trim_end_matches('.').to_owned(),
        };
        name.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use crate::{
        gpt::tensors::{Category, Tensor, TensorId},
        memory::program::Action,
        nanogpt::Source,
        session::{Options, resolve},
        train_config::{Attention, CrossEntropy},
    };

    #[test]
    fn name_of_a_parameter_starts_with_its_module() {
        let parameters = Tensor::ALL.iter().map(|&tensor| TensorId::from(tensor));
        let named = parameters.filter(|stored| matches!(stored.category(), Category::Parameters | Category::CastCache));
        let mut n = 0;
        for stored in named {
            let name = stored.name_in(None);
            let block = (!name.starts_with("transformer.") && !name.starts_with("lm_head.")).then_some("3");
            let (name, module) = (stored.name_in(block), stored.module_in(block));
            assert!(name.strip_prefix(&module).is_some_and(|rest| rest.starts_with('.')), "{name}: {module}");
            n += 1;
        }
        assert!(n > 20, "{n}");
    }

    #[test]
    fn tensors_of_a_block_have_a_module_in_it_and_others_have_none() {
        let configs = ["", "compile = False\n", "dropout = 0.1\nbias = True\n", "compile = False\ndropout = 0.1\n"];
        let options = [
            Options::default(),
            Options { attention: Attention::Math, ..Options::default() },
            Options { activation_checkpointing: true, cross_entropy: CrossEntropy::Chunked, ..Options::default() },
            Options { cross_entropy: CrossEntropy::Fused, gpu: "T4".to_owned(), ..Options::default() },
        ];
        for (config, options) in configs.iter().flat_map(|config| options.iter().map(move |options| (config, options)))
        {
            let source = Source::File { name: "config.py".to_owned(), text: format!("batch_size = 2\n{config}") };
            let program = resolve(&[source], options).request.expect("a request").program().expect("a program");
            for event in program.sections.iter().flat_map(|section| &section.events) {
                let Action::Alloc(code, layer) = event.action() else { continue };
                let stored = TensorId::from_code(code).expect("a tensor of the table");
                let block = layer.map(|layer| layer.to_string());
                let module = stored.module_in(block.as_deref());
                let within = block.map(|block| ["transformer.h.", &block].concat());
                let name = stored.name(layer);
                match within {
                    // The optimizer counts the steps of each parameter, and a scalar has any purpose.
                    Some(_) if matches!(stored.tensor, Tensor::StepCount | Tensor::Scalar) => {}
                    Some(within) => assert!(module.starts_with(&within), "{name}: {module}"),
                    None => assert!(!module.starts_with("transformer.h."), "{name}: {module}"),
                }
            }
        }
    }

    #[test]
    fn modules_have_the_names_of_pytorch_or_of_the_training_loop() {
        let module = |tensor: Tensor, block| TensorId::from(tensor).module_in(block);
        assert_eq!(module(Tensor::Wte, None), "transformer.wte");
        assert_eq!(module(Tensor::Att, Some("3")), "transformer.h.3.attn");
        assert_eq!(module(Tensor::Residual3, Some("0–11")), "transformer.h.0–11");
        assert_eq!(module(Tensor::DvecC, None), "transformer.ln_f");
        assert_eq!(module(Tensor::Logits, None), "lm_head");
        assert_eq!(module(Tensor::GradNorms, None), "optimizer");
        assert_eq!(module(Tensor::FlashDqAccum, None), "transformer.h");
    }
}
