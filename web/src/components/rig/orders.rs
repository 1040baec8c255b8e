//! The form to start a run with a config, a data set and a device, and the queued runs.

use headroom_protocol::run::{Device, Training};
use leptos::prelude::*;

use super::{
    PageRequest, RigContext,
    acts::{busy, said},
};
use crate::{
    browser::rig::keep_focus,
    components::{
        dynamic::{IntoPart, Part, part, part_of, words},
        rig_charts::ZONE,
    },
    state::rig::orders::{LaunchOptions, QueuedRun, RunAction, START, choose_config, listed, queue},
    text::{self, Key, say, t},
};

/// The command that permits to start runs.
const ALLOW: &str = "headroom serve --train FOLDER";
/// Maximum number of choices in a list; a longer list is not usable.
const CHOICES_MAX: usize = 500;
/// Maximum number of characters of a run's name, as the agent accepts it.
const NAME_MAX: &str = "60";

/// The panel to start runs.
#[component]
pub fn Orders(
    /// The page's state.
    desk: RigContext,
) -> impl IntoView {
    let may_change = desk.may_change;
    let waiting = move || (desk.events(|rig| queue(rig, ZONE)), may_change.get());
    let form = move || match (may_change.get(), desk.allowed.get()) {
        (false, _) => view! { <p class="rig__hint">{t(text::RIG_MAY_NOT)}</p> }.into_part(),
        (true, LaunchOptions::Unknown) => ().into_part(),
        (true, LaunchOptions::Failed(why)) => {
            view! { <p class="rig__fault" role="alert">{say(&text::rig_training_failed(why))}</p> }.into_part()
        }
        // The page has a longer text for this reason, with the command set apart.
        (true, LaunchOptions::Is(Training { unavailable: Some(why), .. })) if why.is(text::NO_FOLDER_ALLOWED) => {
            view! {
                <p class="rig__hint">{t(text::RIG_START_NOT)}</p>
                <pre class="rig__command" tabindex="0">{ALLOW}</pre>
            }
            .into_part()
        }
        (true, LaunchOptions::Is(Training { unavailable: Some(why), .. })) => {
            view! { <p class="rig__hint">{text::message(&why)}</p> }.into_part()
        }
        (true, LaunchOptions::Is(training)) => order(desk, training),
    };
    view! {
        <section class="panel orders" aria-labelledby="orders-title" data-testid="orders">
            <h2 class="panel-title" id="orders-title" tabindex="-1">{t(text::RIG_START)}</h2>
            {part(form)}
            {part_of(waiting, move |(waiting, may_change)| {
                keep_focus("wait-", "#orders-title");
                (!waiting.is_empty()).then(|| view! {
                    <h3 class="panel-title" id="queue-title">{t(text::RIG_QUEUE)}</h3>
                    <ol class="orders__queue" aria-labelledby="queue-title" data-testid="queue">
                        {waiting.into_iter().map(|run| waits(desk, run, may_change)).collect_view()}
                    </ol>
                })
            })}
        </section>
    }
}

/// Renders the form. The choices are kept in the page's state, so they outlive the form.
fn order(desk: RigContext, training: Training) -> Part {
    let start = move |event: leptos::ev::SubmitEvent| {
        event.prevent_default();
        desk.ask.run(PageRequest::Start);
    };
    let config = move || desk.order.with(|order| order.config.clone());
    let name = move || desk.order.with(|order| order.name.clone()).unwrap_or_default();
    let named = |name: &String| Device { name: name.clone(), label: name.clone(), unavailable: None };
    let configs: Vec<_> = training.configs.iter().map(|config| named(&config.name)).collect();
    let datasets: Vec<_> = training.datasets.iter().map(named).collect();
    let devices = listed(&training.devices);
    let unable: Vec<_> = devices
        .iter()
        .filter_map(|device| device.unavailable.as_ref().map(|why| format!("{}: {}", device.label, text::message(why))))
        .map(|said| view! { <p class="rig__hint" data-testid="unavailable">{said}</p> })
        .collect();
    let chosen = desk.order.get_untracked();
    let take_config = Callback::new(move |name| desk.order.update(|order| choose_config(order, &training, name)));
    let take_dataset = Callback::new(move |name| desk.order.update(|order| order.dataset = Some(name)));
    let take_device = Callback::new(move |name| desk.order.update(|order| order.device = Some(name)));
    view! {
        <form class="orders__form" on:submit=start novalidate>
            {select("start-config", text::RIG_CONFIG, configs, Some(&chosen.config), take_config)}
            // A new config also sets the data set and the device.
            {part_of(config, move |_| {
                let order = desk.order.get_untracked();
                view! {
                    {select("start-dataset", text::RIG_DATASET, datasets.clone(), order.dataset.as_deref(), take_dataset)}
                    {select("start-device", text::RIG_DEVICE, devices.clone(), order.device.as_deref(), take_device)}
                }
            })}
            <label class="orders__field" for="start-name">
                {t(text::RIG_RUN_NAME)}
                <input class="input" id="start-name" autocomplete="off" maxlength=NAME_MAX prop:value=words(name)
                    on:input:target=move |event| desk.order.update(|order| order.name = Some(event.target().value())) />
            </label>
            <button type="submit" class="button button--primary" id="start" aria-disabled=busy(desk, || START.to_owned())>
                {t(text::RIG_START_NOW)}
            </button>
        </form>
        {unable}
        {said(desk, || START.to_owned())}
    }
    .into_part()
}

/// Renders a drop-down list, including choices that are disabled.
fn select(id: &'static str, label: Key, choices: Vec<Device>, chosen: Option<&str>, take: Callback<String>) -> Part {
    let options: Vec<_> = choices
        .into_iter()
        .take(CHOICES_MAX)
        .map(|Device { name, label, unavailable }| {
            let selected = unavailable.is_none() && chosen == Some(&*name);
            view! { <option value=name selected=selected disabled=unavailable.is_some()>{label}</option> }
        })
        .collect();
    view! {
        <label class="orders__field" for=id>
            {t(label)}
            <select class="input" id=id on:change:target=move |event| take.run(event.target().value())>{options}</select>
        </label>
    }
    .into_part()
}

/// Renders a queued run.
fn waits(desk: RigContext, run: QueuedRun, may_change: bool) -> Part {
    let id = StoredValue::new(run.id.clone());
    let remove = may_change.then(|| {
        view! {
            <button type="button" class="button" id=format!("wait-{}", run.id) aria-label=say(&text::rig_remove(run.name.as_str()))
                aria-disabled=busy(desk, move || id.get_value())
                on:click=move |_| desk.ask.run(PageRequest::Act(id.get_value(), RunAction::Remove))>{t(text::RIG_RULE_REMOVE)}</button>
        }
    });
    view! {
        <li>
            <span><strong>{run.name}</strong>" "<span class="rig__hint">{run.with}</span></span>
            {remove}
            {said(desk, move || id.get_value())}
        </li>
    }
    .into_part()
}
