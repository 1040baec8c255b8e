//! The JSON objects of the REST API, as far as its description states them.
//!
//! These types exist for their derived schemas, and tests compare the schemas with answers. The protocol's own types
//! would derive others: their fields for charts are not part of the description, and their messages are flattened.

#![allow(unused_qualifications, reason = "derived code names its types by their paths")]

use headroom_protocol::metric::{Group, Metric};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        ComponentsBuilder, Discriminator, Object, ObjectBuilder, OneOfBuilder, Ref, RefOr, Schema,
        schema::{Array, ArrayBuilder, SchemaType, Type},
    },
};

use crate::error::ErrorCode;

/// Declares types that no program constructs.
macro_rules! schemas {
    ($($(#[$attribute:meta])* $name:ident { $($(#[$on_field:meta])* $field:ident: $type:ty,)* })*) => {$(
        #[derive(ToSchema)]
        $(#[$attribute])*
        #[expect(dead_code, reason = "its schema is used")]
        pub struct $name { $($(#[$on_field])* $field: $type,)* }
    )*};
}

schemas! {
    Refusal {
        #[schema(schema_with = codes)]
        code: String,
        /// Message for users.
        message: String,
        #[schema(required = false)]
        message_text: Text,
        /// Versions of the protocol that the agent speaks.
        supported: Vec<u32>,
        /// The ID of the request, as in X-Request-Id. Present in errors of the agent (5xx).
        #[schema(required = false)]
        request_id: String,
    }

    /// A message without its wording. The key is stable: it is a name in shared/languages/en.txt of headroom's sources.
    Text {
        key: String,
        #[schema(inline, required = false)]
        args: Vec<TextArgument>,
    }

    Gpu {
        index: u32,
        uuid: String,
        name: String,
        present: bool,
        /// Name in the calculator's GPU table; absent if the table does not have it.
        #[schema(required = false)]
        listed_as: String,
    }

    Rig {
        protocol: u32,
        agent: String,
        session: String,
        name: String,
        time_ms: u64,
        n_viewers: u64,
        gpus: Vec<Gpu>,
        #[schema(schema_with = sources)]
        state: (),
        #[schema(schema_with = object_or_null, required)]
        telemetry: (),
        #[schema(schema_with = object_or_null, required)]
        slow: (),
        /// Active alerts, newest first.
        #[schema(max_items = 100)]
        alerts: Vec<Fired>,
    }

    Fired {
        /// Number of the event that raised the alert; 0 while history is paused.
        event: u64,
        alert: Alert,
        /// The GPU's UUID.
        #[schema(required = false)]
        gpu: String,
        #[schema(required = false)]
        gpu_name: String,
        #[schema(required = false)]
        run: String,
        time_ms: u64,
        /// The reading that exceeded its limit.
        #[schema(required = false)]
        value: f64,
    }

    History {
        gpu: String,
        from_ms: u64,
        to_ms: u64,
        step_ms: u64,
        times_ms: Vec<u64>,
        #[schema(schema_with = series, required)]
        series: (),
    }

    Series {
        min: Vec<Option<f64>>,
        mean: Vec<Option<f64>>,
        max: Vec<Option<f64>>,
    }

    Run {
        id: String,
        name: String,
        started_ms: u64,
        #[schema(required)]
        ended_ms: Option<u64>,
        #[schema(inline)]
        status: RunStatus,
        #[schema(required)]
        pid: Option<u32>,
        /// Lines of the config that its trainer ignores, with their positions
        #[schema(required = false)]
        config_notes: Vec<String>,
        /// One for each of config_notes.
        #[schema(required = false)]
        config_notes_text: Vec<Option<Text>>,
        /// Why the run ended, if known, or why its newest checkpoint could not be saved.
        #[schema(required = false)]
        explanation: String,
        #[schema(required = false)]
        explanation_text: Text,
        #[schema(required = false)]
        order: Order,
        /// Energy that its GPUs used in all counted parts.
        #[schema(required = false)]
        energy_joules: f64,
        #[schema(inline, required = false)]
        earlier: EarlierParts,
        #[schema(inline, required = false)]
        checkpoint: Checkpoint,
    }

    RunStatus {
        #[schema(schema_with = states)]
        state: String,
        /// Cause of a failed run: out_of_gpu_memory, out_of_host_memory, card_error, diverged; or how it was ended:
        /// stopped, unqueued. Later versions may add values
        #[schema(required = false)]
        cause: String,
    }

    /// Earlier parts of a resumed run: their duration, the energy of its GPUs, and the start of what follows, first the
    /// wait for the next part and then that part.
    EarlierParts {
        took_ms: u64,
        #[schema(required = false)]
        energy_joules: f64,
        since_ms: u64,
    }

    Checkpoint {
        iter: u64,
        bytes: u64,
    }

    Event {
        id: u64,
        time_ms: u64,
        #[schema(required = false)]
        run: String,
        #[schema(schema_with = event_kind)]
        what: (),
    }

    /// A GPU is hotter than this.
    #[serde(deny_unknown_fields)]
    TemperatureAbove {
        #[schema(schema_with = temperature_above)]
        on: String,
        #[schema(minimum = 1, maximum = 150)]
        celsius: u64,
    }

    /// The memory use of a GPU exceeds this.
    #[serde(deny_unknown_fields)]
    MemoryAbove {
        #[schema(schema_with = memory_above)]
        on: String,
        #[schema(minimum = 1, maximum = 100)]
        percent: u64,
    }

    /// A run makes no progress for this time.
    #[serde(deny_unknown_fields)]
    NoProgress {
        #[schema(schema_with = no_progress)]
        on: String,
        #[schema(minimum = 1, maximum = 10080)]
        minutes: u64,
    }

    /// A GPU stopped responding.
    #[serde(deny_unknown_fields)]
    CardLost {
        #[schema(schema_with = card_lost)]
        on: String,
    }

    /// A run ended with an error.
    #[serde(deny_unknown_fields)]
    RunFailed {
        #[schema(schema_with = run_failed)]
        on: String,
    }

    /// Settings of a run to start.
    #[serde(deny_unknown_fields)]
    Order {
        /// Name of a config.
        config: String,
        /// Name of a data set. Default: the config's.
        dataset: Option<String>,
        /// Name of a device. Default: the config's device, or else the first.
        device: Option<String>,
        /// Name of the run.
        #[schema(max_length = 60)]
        name: Option<String>,
    }

    /// Names that a request may use.
    Training {
        /// Why no run can be started.
        #[schema(required = false)]
        unavailable: String,
        #[schema(required = false)]
        unavailable_text: Text,
        #[schema(inline)]
        configs: Vec<AllowedConfig>,
        datasets: Vec<String>,
        #[schema(inline)]
        devices: Vec<Device>,
    }

    AllowedConfig {
        name: String,
        #[schema(required = false)]
        dataset: String,
        /// The device that the config names, if it can train.
        #[schema(required = false)]
        device: String,
        #[schema(required = false)]
        max_iters: u64,
    }

    Device {
        name: String,
        label: String,
        /// Why the device cannot train. Such devices are listed last.
        #[schema(required = false)]
        unavailable: String,
        #[schema(required = false)]
        unavailable_text: Text,
    }

    #[serde(deny_unknown_fields)]
    Settings {
        #[schema(max_items = 32)]
        alerts: Vec<Alert>,
        #[schema(minimum = 0, maximum = 1000000, required = false)]
        price_per_kwh: f64,
        #[schema(max_length = 8, pattern = r"^[^\u0000-\u001f\u007f-\u009f]*$", required = false)]
        currency: String,
    }

    #[serde(deny_unknown_fields)]
    PairRequest {
        /// The pairing code: the part of the link after #pair=.
        code: String,
        /// Name of the device in lists.
        #[schema(min_length = 1, max_length = 64)]
        name: String,
    }

    NewToken {
        token: String,
        #[schema(schema_with = scopes)]
        scope: String,
        name: String,
    }
}

/// Adds the schemas that others refer to.
pub fn add_all(components: ComponentsBuilder) -> ComponentsBuilder {
    let schemas = [
        (Refusal::name(), Refusal::schema()),
        (Text::name(), Text::schema()),
        (Reading::name(), Reading::schema()),
        (Gpu::name(), Gpu::schema()),
        (Rig::name(), Rig::schema()),
        (Fired::name(), Fired::schema()),
        (Alert::name(), Alert::schema()),
        (History::name(), History::schema()),
        (Run::name(), Run::schema()),
        (Event::name(), Event::schema()),
        (TemperatureAbove::name(), TemperatureAbove::schema()),
        (MemoryAbove::name(), MemoryAbove::schema()),
        (NoProgress::name(), NoProgress::schema()),
        (CardLost::name(), CardLost::schema()),
        (RunFailed::name(), RunFailed::schema()),
        (Order::name(), Order::schema()),
        (Training::name(), Training::schema()),
        (Settings::name(), Settings::schema()),
    ];
    components.schemas_from_iter(schemas)
}

/// A value, or the reason why it is missing.
pub struct Reading;

impl ToSchema for Reading {}

impl PartialSchema for Reading {
    fn schema() -> RefOr<Schema> {
        let description = "A value, or {\"missing\": reason}.";
        ObjectBuilder::new().schema_type(SchemaType::AnyValue).description(Some(description)).into()
    }
}

/// An argument of a text.
pub struct TextArgument;

impl ToSchema for TextArgument {}

impl PartialSchema for TextArgument {
    fn schema() -> RefOr<Schema> {
        let description = "One of: {text}, which is the same in every language; {number}, {count} in groups of digits, \
                           {decimal}, {bytes}; {list, separator} with further arguments; {key, args}, another text.";
        ObjectBuilder::new().schema_type(Type::Object).description(Some(description)).into()
    }
}

/// An alert rule.
pub struct Alert;

impl ToSchema for Alert {}

impl PartialSchema for Alert {
    fn schema() -> RefOr<Schema> {
        let rules = [
            ("temperature_above", TemperatureAbove::name()),
            ("memory_above", MemoryAbove::name()),
            ("no_progress", NoProgress::name()),
            ("card_lost", CardLost::name()),
            ("run_failed", RunFailed::name()),
        ];
        let rules = rules.map(|(on, name)| (on, Ref::from_schema_name(name)));
        let mapping = rules.iter().map(|(on, reference)| (*on, reference.ref_location.clone()));
        let description = "An alert rule.";
        let one_of = OneOfBuilder::new()
            .description(Some(description))
            .discriminator(Some(Discriminator::with_mapping("on", mapping)));
        rules.into_iter().fold(one_of, |one_of, (_, reference)| one_of.item(reference)).into()
    }
}

/// A code of a refusal. Later versions may add codes, so the names are not an enumeration.
fn codes() -> Object {
    let description = format!("Stable: {}.", ErrorCode::NAMES.join(", "));
    ObjectBuilder::new().schema_type(Type::String).description(Some(description)).build()
}

/// An object of which only required fields are described.
fn object_with(required: &[&str]) -> Object {
    let object = ObjectBuilder::new().schema_type(Type::Object);
    required.iter().fold(object, |object, name| object.required(*name)).build()
}

/// Returns the schema of a history's series, with the metrics of each group in their order.
fn series() -> Array {
    let metric = |metric: &Metric| {
        let since = if metric.unit().is_counted() { " since the driver was loaded" } else { "" };
        format!("{} ({}{since})", metric.id(), metric.unit().words())
    };
    let of_group = |group: Group| {
        let metrics: Vec<String> = group.metrics().iter().map(metric).collect();
        format!("Of the group {}: {}.", group.name(), metrics.join(", "))
    };
    let description = Group::ALL.map(of_group).join(" ");
    ArrayBuilder::new().items(Series::schema()).description(Some(description)).build()
}

fn sources() -> Object {
    object_with(&["driver", "history"])
}

fn event_kind() -> Object {
    object_with(&["kind"])
}

fn object_or_null() -> Object {
    Object::with_type(SchemaType::Array(vec![Type::Object, Type::Null]))
}

fn one_of(names: &[&str]) -> Object {
    ObjectBuilder::new().schema_type(SchemaType::AnyValue).enum_values(Some(names.iter().copied())).build()
}

/// Functions that return the schema of a constant, which has their name.
macro_rules! constants {
    ($($name:ident)*) => {$(fn $name() -> Object {
        one_of(&[stringify!($name)])
    })*};
}

constants! { temperature_above memory_above no_progress card_lost run_failed }

fn states() -> Object {
    one_of(&["running", "queued", "stalled", "exited", "killed", "lost"])
}

fn scopes() -> Object {
    one_of(&["view", "control"])
}
