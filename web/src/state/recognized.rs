//! Recognition of any text about a run: what it is, and the pages that answer it.

use headroom_planner::{
    link::{split_compared, trainer},
    nanogpt::{Format, PastedKind, recognize as recognize_format},
    oom::{self, Kind, Message, NotOom},
    session::Options,
    trainers::{
        input::{Input, InputError},
        launch::input_in,
    },
};
use headroom_text::Text;

use super::{
    answer::Reading,
    parse, read_settings,
    session::Session,
    trainer::{config_text, display_name},
    trainer_text::{Json, fine_tuning, is_model, json_object, linked_plan, named_preset, path_of_model, requested},
};
use crate::text::{self, Key};

/// The page of a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Page {
    /// The calculator of nanoGPT.
    Calculator,
    /// The explanation of a message.
    Diagnose,
    /// The comparison of two runs.
    Compare,
    /// The list of GPUs.
    Gpus,
    /// The calculator of other trainers.
    Trainers,
}

impl Page {
    /// The pages with the names of their files.
    const ALL: [(&str, Self); 5] = [
        ("calculator.html", Self::Calculator),
        ("diagnose.html", Self::Diagnose),
        ("compare.html", Self::Compare),
        ("gpus.html", Self::Gpus),
        ("trainers.html", Self::Trainers),
    ];

    /// The name of the file.
    pub fn file(self) -> &'static str {
        Self::ALL[self as usize].0
    }

    /// The name of the page in the header; the calculators have one.
    const fn title(self) -> Key {
        match self {
            Self::Calculator | Self::Trainers => text::PAGE_BUDGET,
            Self::Diagnose => text::PAGE_DIAGNOSE,
            Self::Compare => text::PAGE_COMPARE,
            Self::Gpus => text::PAGE_GPUS,
        }
    }
}

/// What the page takes from the text besides the fragment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// Nothing: the fragment has everything.
    Nothing,
    /// The run's config, command or log, with its comments and names.
    Run(String),
    /// The whole text, which contains the message.
    Message,
}

/// A page that answers the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Destination {
    /// The page.
    pub page: Page,
    /// The fragment, without `#`; empty for none.
    pub fragment: String,
    /// What the page takes from the text.
    pub carried: Carried,
    /// The label of the button.
    pub label: Key,
}

impl Destination {
    fn new(page: Page, label: Key, fragment: String) -> Self {
        Self { page, fragment, carried: Carried::Nothing, label }
    }

    fn with(self, carried: Carried) -> Self {
        Self { carried, ..self }
    }
}

/// A recognized text.
#[derive(Clone, Debug, PartialEq)]
pub struct Recognized {
    /// What the text is.
    pub what: Text,
    /// Why no page answers it, or a remark.
    pub detail: Option<Text>,
    /// The pages that answer it, the best one first.
    pub destinations: Vec<Destination>,
}

impl Recognized {
    fn new(what: Text, destinations: Vec<Destination>) -> Self {
        Self { what, detail: None, destinations }
    }

    /// The page that opens without a question: the only one that answers the text.
    pub fn only(&self) -> Option<&Destination> {
        if let [only] = self.destinations.as_slice() { Some(only) } else { None }
    }
}

/// Recognizes a text, for a run on the GPU of `options`. `None` for an empty text.
pub fn recognize(text: &str, options: &Options) -> Option<Recognized> {
    if text.trim().is_empty() {
        return None;
    }
    let json = json_object(text);
    let found = of_link(text, json.as_ref()).or_else(|| of_message(text, options));
    let found = found.or_else(|| of_model(text, json.as_ref(), options));
    let found = found.or_else(|| of_trainer(text, options)).or_else(|| of_request(text, options));
    Some(found.unwrap_or_else(|| of_nanogpt(text, options)))
}

/// A link to a page, or the JSON of a plan, which has one.
fn of_link(text: &str, json: Option<&Json>) -> Option<Recognized> {
    let linked = json.and_then(linked_plan);
    let text = linked.unwrap_or(text).trim();
    let Some(Format::Link(fragment)) = recognize_format(text) else { return None };
    let address = text.split(['#', '?']).next().unwrap_or_default();
    let file = address.rsplit('/').next().unwrap_or_default().trim_end_matches(".html");
    let named = Page::ALL.iter().find(|(name, _)| name.trim_end_matches(".html") == file);
    let by_content = || match fragment.as_str() {
        fragment if split_compared(fragment).1.is_some() => Page::Compare,
        fragment if trainer::decode(fragment).is_some() => Page::Trainers,
        fragment if oom::link::decode(fragment).0.is_some() => Page::Diagnose,
        _ => Page::Calculator,
    };
    let page = named.map_or_else(by_content, |(_, page)| *page);
    let what = if linked.is_some() { text::START_IS_JSON.into() } else { text::start_is_link(page.title()) };
    Some(Recognized::new(what, vec![Destination::new(page, text::START_OPEN, fragment)]))
}

/// A message of an allocation that failed. Another failure is explained by Diagnose too, beside the run in the text.
fn of_message(text: &str, options: &Options) -> Option<Recognized> {
    let message = oom::read(text).first?;
    let fragment = format!("1{}", oom::link::encode(&message));
    let diagnose = Destination::new(Page::Diagnose, text::START_DIAGNOSE, fragment).with(Carried::Message);
    match message.not_oom {
        Some(NotOom::OnlyMentioned | NotOom::Warning) => None,
        Some(_) => {
            let what = text::START_IS_FAILURE.into();
            let is_run = Reading::of_text(text) == Reading::Run;
            let run = is_run.then(|| run_of_text(text, options));
            Some(Recognized::new(what, [diagnose].into_iter().chain(run).collect()))
        }
        None => Some(Recognized::new(named_message(&message), vec![diagnose])),
    }
}

fn named_message(message: &Message) -> Text {
    let requested = message.requested.map(|requested| text::size(requested.bytes));
    let total = message.total.map(|total| text::size(total.bytes));
    match (message.kind, requested, total) {
        (Kind::Cpu, ..) => text::START_IS_HOST_MESSAGE.into(),
        (_, Some(requested), Some(total)) => text::start_is_message_of(requested, total),
        (_, Some(requested), None) => text::start_is_message_for(requested),
        (_, None, _) => text::START_IS_MESSAGE.into(),
    }
}

/// The `config.json` of a model, or the name or address of a published one.
fn of_model(text: &str, json: Option<&Json>, options: &Options) -> Option<Recognized> {
    if let Some(preset) = named_preset(text) {
        let config = config_text(preset);
        return Some(Recognized::new(
            text::start_is_model(preset.name),
            vec![to_fine_tuning(&fine_tuning(config), options)],
        ));
    }
    if let Some(name) = unknown_model(text) {
        let detail = Some(text::START_PASTE_CONFIG.into());
        return Some(Recognized { what: text::start_is_model(name), detail, destinations: Vec::new() });
    }
    let json = json.filter(|json| is_model(json))?;
    let family = json.get("model_type").and_then(|family| family.as_str()).unwrap_or_default().to_owned();
    let input = fine_tuning(text.to_owned());
    let detail = match input.read() {
        Err(error @ InputError::Config(_)) => Some(text::verbatim(error.to_string())),
        _ => None,
    };
    let fine_tuning = detail.is_none().then(|| to_fine_tuning(&input, options));
    let is_gpt2 = matches!(recognize_format(text), Some(Format::Settings(_)));
    let nanogpt = is_gpt2.then(|| Destination { label: text::START_NANOGPT, ..run_of_text(text, options) });
    let destinations = fine_tuning.into_iter().chain(nanogpt).collect();
    Some(Recognized { what: text::start_is_model(family.as_str()), detail, destinations })
}

/// A text of the form `owner/model`, or the address of a model's page.
fn unknown_model(text: &str) -> Option<&str> {
    let path = path_of_model(text);
    let mut parts = path.split('/');
    let (owner, model) = (parts.next()?, parts.next()?);
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    };
    let is_address = path.len() < text.trim().trim_end_matches('/').len();
    let is_file = || FILE_ENDINGS.iter().any(|ending| model.ends_with(ending));
    let is_named = is_name(owner) && is_name(model) && (is_address || parts.next().is_none() && !is_file());
    is_named.then(|| &path[..=owner.len() + model.len()])
}

/// Endings of paths of files, which are no names of models.
const FILE_ENDINGS: [&str; 9] = [".py", ".json", ".txt", ".log", ".sh", ".yaml", ".yml", ".toml", ".bin"];

fn to_fine_tuning(input: &Input, options: &Options) -> Destination {
    Destination::new(Page::Trainers, text::START_FINE_TUNE, trainer::encode(input, options))
}

/// A command or a log of nanochat, or a command that fine-tunes a published model.
fn of_trainer(text: &str, options: &Options) -> Option<Recognized> {
    let input = match input_in(text)? {
        Ok(input) => input,
        Err(error) => {
            let (what, detail) = (text::start_is_run_of("nanochat"), Some(text::verbatim(error.to_string())));
            return Some(Recognized { what, detail, destinations: Vec::new() });
        }
    };
    let name = display_name(input.trainer);
    let detail = input.read().err().map(|error| text::verbatim(error.to_string()));
    let to = Destination::new(Page::Trainers, text::START_CALCULATE, trainer::encode(&input, options));
    Some(Recognized { what: text::start_is_run_of(name), detail, destinations: vec![to] })
}

/// A request in words that names a model.
fn of_request(text: &str, options: &Options) -> Option<Recognized> {
    let input = requested(text)?;
    Some(Recognized::new(text::start_is_run_of("Hugging Face"), vec![to_fine_tuning(&input, options)]))
}

fn of_nanogpt(text: &str, options: &Options) -> Recognized {
    let (pasted, settings) = (parse(text), read_settings(text));
    match Reading::of(text, pasted.kind, &settings) {
        Reading::Run | Reading::Empty => {
            let what = text::read_as(pasted.kind, settings.values.len());
            Recognized::new(what, vec![run_of_text(text, options)])
        }
        Reading::Foreign | Reading::OutOfMemory => {
            let problem = pasted.problems.as_slice().first().filter(|_| pasted.kind == PastedKind::Unsupported);
            let what = problem.map_or_else(|| text::START_IS_UNKNOWN.into(), |problem| problem.message.clone());
            let hint = problem.and_then(|problem| problem.hint.clone());
            let detail = hint.unwrap_or_else(|| text::START_ACCEPTS.into());
            Recognized { what, detail: Some(detail), destinations: Vec::new() }
        }
    }
}

/// The calculator with a run of nanoGPT.
fn run_of_text(text: &str, options: &Options) -> Destination {
    let mut session = Session::new(String::new(), options.clone());
    session.set_text(text.to_owned());
    Destination::new(Page::Calculator, text::START_CALCULATE, session.fragment()).with(Carried::Run(session.text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::{EXAMPLE_MESSAGE, say};
    use headroom_planner::{
        link::trainer::TrainerLink,
        trainers::{input::Trainer, presets},
    };

    fn recognized(text: &str) -> Recognized {
        recognize(text, &Options { gpu: "RTX 3060".into(), ..Options::default() }).expect("a text")
    }

    /// The pages and the labels of their buttons.
    fn ways(text: &str) -> Vec<(Page, Key)> {
        recognized(text).destinations.iter().map(|to| (to.page, to.label)).collect()
    }

    fn trainer_link(text: &str) -> TrainerLink {
        let found = recognized(text);
        trainer::decode(&found.only().expect("one page").fragment).expect("a link of a trainer")
    }

    #[test]
    fn an_empty_text_is_nothing() {
        assert_eq!(recognize(" \n", &Options::default()), None);
    }

    #[test]
    fn messages_open_diagnose_with_their_figures() {
        for text in [EXAMPLE_MESSAGE.to_owned(), format!("step 0: train loss 10.9\n{EXAMPLE_MESSAGE}\n")] {
            let found = recognized(&text);
            let to = found.only().expect("one page");
            assert_eq!((to.page, &to.carried), (Page::Diagnose, &Carried::Message));
            assert!(to.fragment.starts_with("1&oom.") && to.fragment.contains("6.14GiB"), "{}", to.fragment);
            assert!(say(&found.what).contains("6.14 GiB could not be allocated"), "{}", say(&found.what));
        }
        assert_eq!(ways("torch.OutOfMemoryError: CUDA out of memory."), [(Page::Diagnose, text::START_DIAGNOSE)]);
    }

    #[test]
    fn an_unknown_model_is_named_with_the_way_to_its_shape() {
        for text in
            ["meta-llama/Llama-3.3-70B", " https://huggingface.co/meta-llama/Llama-3.3-70B/tree/main ", "a_b/c.1-2\n"]
        {
            let found = recognized(text);
            assert!(found.destinations.is_empty(), "{text}");
            assert_eq!(found.detail, Some(text::START_PASTE_CONFIG.into()), "{text}");
            assert!(
                say(&found.what).ends_with(
                    text.trim().trim_start_matches("https://huggingface.co/").trim_end_matches("/tree/main")
                )
            );
        }
        for text in ["config/train_gpt2.py", "1/2/3", "./a/b", "a b/c", "/", "learning/rate = 1"] {
            assert_ne!(recognized(text).detail, Some(text::START_PASTE_CONFIG.into()), "{text}");
        }
    }

    #[test]
    fn another_failure_in_a_log_leaves_the_choice() {
        let text = "python train.py --batch_size=8\nRuntimeError: CUDA error: device-side assert triggered\n";
        assert_eq!(ways(text), [(Page::Diagnose, text::START_DIAGNOSE), (Page::Calculator, text::START_CALCULATE)]);
        assert_eq!(recognized(text).only(), None);
    }

    #[test]
    fn texts_of_nanogpt_open_the_calculator_on_the_chosen_gpu() {
        for text in
            ["batch_size = 64  # mine\n", "python train.py --batch_size=64", "124M, batch 64", r#"{"batch_size": 64}"#]
        {
            let found = recognized(text);
            let to = found.only().expect("one page");
            assert_eq!(to.page, Page::Calculator, "{text}");
            assert!(
                to.fragment.contains("batch_size=64") && to.fragment.ends_with("gpu=RTX%203060"),
                "{}",
                to.fragment
            );
            assert!(matches!(&to.carried, Carried::Run(run) if !run.is_empty()), "{text}");
        }
    }

    #[test]
    fn json_of_a_plan_keeps_its_gpu() {
        let text = r#"{"schema": 1, "config": {"batch_size": 64}, "device": {"name": "L4", "total_bytes": 5}}"#;
        let found = recognized(text);
        assert!(found.only().expect("one page").fragment.contains("gpu=L4"));
    }

    #[test]
    fn links_open_their_page() {
        for (text, page) in [
            ("https://a.example/tools/#1&batch_size=3", Page::Calculator),
            ("#1&batch_size=3", Page::Calculator),
            ("https://a.example/gpus.html#1&batch_size=3", Page::Gpus),
            ("https://a.example/gpus?lang=de#1&batch_size=3", Page::Gpus),
            ("https://a.example/compare.html#1&batch_size=3", Page::Compare),
            ("https://a.example/#1&trainer=nanochat&options=--depth=4", Page::Trainers),
            ("https://a.example/#1&oom.requested=6.14GiB", Page::Diagnose),
        ] {
            let found = recognized(text);
            let to = found.only().expect("one page");
            assert_eq!(to.page, page, "{text}");
            assert!(text.ends_with(&to.fragment), "{text}");
        }
    }

    #[test]
    fn json_with_a_link_opens_its_page() {
        let found = recognized(r##"{"schema": 1, "trainer": "hf", "link": "#1&trainer=hf&options=--bf16"}"##);
        assert_eq!(found.only().map(|to| to.page), Some(Page::Trainers));
    }

    #[test]
    fn a_model_opens_its_fine_tuning() {
        let config = config_text(presets::find("Llama-3.2-1B").expect("a preset"));
        for text in
            [&config, "meta-llama/Llama-3.2-1B", "https://huggingface.co/meta-llama/Llama-3.2-1B/", "llama-3.2-1b"]
        {
            let link = trainer_link(text);
            assert_eq!((link.input.trainer, link.options.gpu.as_str()), (Trainer::Hf, "RTX 3060"), "{text}");
            assert!(link.input.read().is_ok() && link.input.config.contains("llama"), "{text}");
        }
    }

    #[test]
    fn gpt2_has_two_trainers() {
        let config = r#"{"model_type": "gpt2", "n_layer": 24, "n_head": 16, "n_embd": 1024"#;
        let text = format!(r#"{config}, "n_positions": 1024, "vocab_size": 50257}}"#);
        assert_eq!(ways(&text), [(Page::Trainers, text::START_FINE_TUNE), (Page::Calculator, text::START_NANOGPT)]);
        let found = recognized(&format!("{config}}}"));
        assert_eq!((found.only().map(|to| to.page), found.detail.is_some()), (Some(Page::Calculator), true));
    }

    #[test]
    fn an_unsupported_model_has_a_reason_and_no_page() {
        let found = recognized(r#"{"model_type": "mixtral", "hidden_size": 4096}"#);
        assert!(found.destinations.is_empty());
        assert!(found.detail.is_some_and(|detail| say(&detail).contains("mixtral")));
    }

    #[test]
    fn commands_and_logs_of_trainers_open_their_calculator() {
        let link = trainer_link("python -m scripts.base_train --compile=False --depth=4 --device-batch-size=2");
        assert_eq!((link.input.trainer, link.options.gpu.as_str()), (Trainer::Nanochat, "RTX 3060"));
        let link = trainer_link("accelerate launch sft.py --model_name_or_path Qwen/Qwen3-0.6B --bf16");
        assert!(link.input.command.contains("--bf16") && link.input.config.contains("qwen3"));
        // The calculator shows the error with the form.
        let found = recognized("python -m scripts.base_train --compile=False --depth=many");
        assert!(found.only().is_some() && found.detail.is_some_and(|detail| say(&detail).contains("depth")));
    }

    #[test]
    fn a_request_in_words_opens_the_fine_tuning_of_its_model() {
        let link = trainer_link("fine-tune Qwen/Qwen3-1.7B with LoRA");
        assert!(link.input.command.contains("--lora_r=16") && link.input.config.contains("qwen3"));
    }

    #[test]
    fn other_texts_are_not_guessed() {
        for text in ["hello", "my gpu is slow", "{\"a\": 1}", "name: x\nsteps: 3\n", "\u{0}"] {
            let found = recognized(text);
            assert!(found.destinations.is_empty() && found.detail.is_some(), "{text}");
        }
    }
}
