//! What to do about a message whose run Headroom does not know.

use headroom_planner::{memory::message::TorchVersion, oom::Cause, session::Options};
use leptos::prelude::*;

use crate::{
    browser,
    components::{
        actions::{CopyButton, command_words},
        dynamic::act,
    },
    state::{diagnosis::ShownDiagnosis, solving::OpenQuestion},
    text::{self, Key, t},
};

/// Renders the panel: a remedy for each cause, and the ways to an exact answer.
pub fn remedies(shown: &ShownDiagnosis, unsolved: &OpenQuestion) -> AnyView {
    let by_cause = shown.causes.iter().filter_map(|cause| match cause {
        Cause::OtherProcess { .. } => Some(command(text::REMEDY_PROCESSES, "copy-processes", PROCESSES_COMMAND)),
        Cause::Fragmentation { .. } => {
            let variable = allocator_variable(&unsolved.options);
            Some(command(
                text::REMEDY_EXPANDABLE,
                "copy-variable",
                &format!("export {variable}=expandable_segments:True"),
            ))
        }
        Cause::GpuFull => None,
    });
    let config = (!unsolved.has_config).then(|| {
        view! {
            <li class="diagnose__remedy">
                <p>{t(text::REMEDY_CONFIG)}</p>
                <button type="button" class="button button--primary" data-testid="add-config"
                    on:click=act(|| browser::focus("config"))>{t(text::ADD_CONFIG)}</button>
            </li>
        }
        .into_any()
    });
    let batch = view! { <li class="diagnose__remedy"><p>{t(text::REMEDY_BATCH)}</p></li> }.into_any();
    let record = command(text::REMEDY_RECORD, "copy-record", &record_commands(&unsolved.options));
    let rows: Vec<_> = by_cause.chain(config).chain([batch, record]).collect();
    view! {
        <div class="panel" data-testid="remedies">
            <h2 class="panel-title">{t(text::REMEDIES)}</h2>
            <ol class="diagnose__remedies">{rows}</ol>
        </div>
    }
    .into_any()
}

/// Lists the processes that use a GPU.
const PROCESSES_COMMAND: &str = "nvidia-smi --query-compute-apps=pid,used_memory,name --format=csv";

/// A sentence with a command to copy.
fn command(words: Key, id: &'static str, command: &str) -> AnyView {
    let content = command.to_owned();
    view! {
        <li class="diagnose__remedy">
            <p>{t(words)}</p>
            <pre class="fixes__code diagnose__command" tabindex="0">{command_words(command)}</pre>
            <CopyButton id=id label=t(text::COPY) content=move |()| Some(content.clone()) />
        </li>
    }
    .into_any()
}

fn allocator_variable(options: &Options) -> &'static str {
    options.torch.parse().unwrap_or(TorchVersion::RECORDED).allocator_variable()
}

/// Commands that record a program and replay it on the message's GPU.
fn record_commands(options: &Options) -> String {
    let gpu = match (options.gpu.as_str(), options.vram_bytes) {
        ("", Some(bytes)) => format!("--vram {bytes}B"),
        ("", None) => "--gpu \"RTX 4070\"".to_owned(),
        (name, _) => format!("--gpu \"{name}\""),
    };
    format!("headroom record -- python train.py\nheadroom replay train.headroom {gpu}")
}
