//! Comparison of printed figures with the plan of the config. A difference means that the model, the loop or the config
//! is not the planned one, so the plan does not apply.

use headroom_planner::{gpt::GptConfig, plan::Request};
use headroom_protocol::run::{Contradiction, Figure};

/// Figures printed so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// `number of parameters`, in millions, and its number of decimals.
    pub parameters: Option<(f64, u32)>,
    /// `tokens per iteration will be`.
    pub tokens_per_iteration: Option<u64>,
}

impl Figures {
    /// First figure that differs from the plan. `None` if all agree.
    pub fn contradict(&self, request: &Request) -> Option<Contradiction> {
        self.parameters_contradict(&request.gpt).or_else(|| self.tokens_contradict(request))
    }

    fn parameters_contradict(&self, gpt: &GptConfig) -> Option<Contradiction> {
        let (printed, decimals) = self.parameters?;
        let planned = gpt.other_parameters(printed, decimals)?;
        Some(Contradiction { figure: Figure::ParametersMillions, printed, planned })
    }

    fn tokens_contradict(&self, request: &Request) -> Option<Contradiction> {
        let printed = self.tokens_per_iteration?;
        let planned = request.train.tokens_per_iteration(request.gpt.block_size())?;
        let found =
            Contradiction { figure: Figure::TokensPerIteration, printed: printed as f64, planned: planned as f64 };
        (printed != planned).then_some(found)
    }
}

#[cfg(test)]
mod tests {
    use headroom_planner::{
        nanogpt::Source,
        session::{Options, resolve},
    };

    use super::*;

    fn request(overrides: &[&str]) -> Request {
        let sources: Vec<Source> = overrides.iter().map(|text| Source::Override { text: (*text).to_owned() }).collect();
        resolve(&sources, &Options::default()).request.expect("a run")
    }

    /// nanoGPT's output for these settings.
    const PRINTED: [(&[&str], f64, u64); 4] = [
        (&[], 123.59, 491_520),
        (&["--n_layer=6", "--n_head=6", "--n_embd=384", "--block_size=256", "--batch_size=64"], 29.94, 655_360),
        (&["--init_from=gpt2", "--batch_size=1", "--gradient_accumulation_steps=1"], 123.65, 1024),
        (&["--init_from=gpt2", "--block_size=512", "--batch_size=1", "--gradient_accumulation_steps=1"], 123.65, 512),
    ];

    #[test]
    fn nanogpt_output_matches_plan_of_its_config() {
        for (overrides, millions, tokens) in PRINTED {
            let request = request(overrides);
            let found = |millions, decimals, tokens| {
                let figures = Figures { parameters: Some((millions, decimals)), tokens_per_iteration: Some(tokens) };
                figures.contradict(&request).map(|found| found.figure)
            };
            assert_eq!(found(millions, 2, tokens), None, "{overrides:?}");
            assert_eq!(found(millions + 0.01, 2, tokens), Some(Figure::ParametersMillions), "{overrides:?}");
            assert_eq!(found(millions - 0.01, 2, tokens), Some(Figure::ParametersMillions), "{overrides:?}");
            assert_eq!(found(millions, 2, tokens + 1), Some(Figure::TokensPerIteration), "{overrides:?}");
            // A figure with fewer digits is compared with less precision.
            assert_eq!(found(millions.round(), 0, tokens), None, "{overrides:?}");
            assert_eq!(found(millions.round() + 1.0, 0, tokens), Some(Figure::ParametersMillions), "{overrides:?}");
        }
    }

    #[test]
    fn parameter_count_with_position_embeddings_matches() {
        let found = |millions| {
            let figures = Figures { parameters: Some((millions, 2)), tokens_per_iteration: None };
            figures.contradict(&request(&[])).map(|found| found.planned)
        };
        assert_eq!((found(123.59), found(124.37)), (None, None));
        assert_eq!(found(124.0), Some(123.587_328));
    }

    #[test]
    fn unprinted_values_do_not_contradict() {
        assert_eq!(Figures::default().contradict(&request(&[])), None);
        let tokens = Figures { tokens_per_iteration: Some(5), ..Figures::default() };
        let found = Contradiction { figure: Figure::TokensPerIteration, printed: 5.0, planned: 491_520.0 };
        assert_eq!(tokens.contradict(&request(&[])), Some(found));
    }

    #[test]
    fn a_figure_of_any_length_is_held_against_something() {
        for decimals in [0, 2, 400, u32::MAX] {
            let figures = Figures { parameters: Some((1e300, decimals)), tokens_per_iteration: None };
            assert!(figures.contradict(&request(&[])).is_some(), "{decimals}");
        }
    }
}
