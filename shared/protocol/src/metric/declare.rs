//! The macro that declares the structs of the wire and [`Metric`](super::Metric) from the rows.

/// Returns the value of an optional column.
macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

/// Declares the struct of each group, and a metric for each field with a row. A field without a row is on the wire only.
///
/// A field that a message lacks is a missing reading, because an older agent does not send it. Fields are on the wire in
/// the order of the rows, so a new one is the last of its struct.
macro_rules! readings {
    ($(
        $(#[$on_struct:meta])*
        struct $struct:ident in $group:ident, names $prefix:literal $(, $(#[$on_key:meta])* key $key:ident: $key_type:ty)? {
            $(
                $(#[$on_field:meta])*
                $field:ident: $type:ty $(=> $metric:ident {
                    label: $doctor:literal,
                    unit: $unit:ident,
                    $(series: $series:literal,)?
                    $(chart: $chart:ident $text:ident,)?
                    $(prometheus: $kind:ident $family:literal $((kind $label:literal))? $help:literal,)?
                    $(nvidia_smi: $smi:literal,)?
                })?,
            )*
        }
    )*) => {
        $(
            $(#[$on_struct])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $struct {
                $($(#[$on_key])* pub $key: $key_type,)?
                $($(#[$on_field])* #[serde(default)] pub $field: Reading<$type>,)*
            }

            impl $struct {
                /// Creates a sample without any reading.
                #[must_use]
                pub const fn missing($($key: $key_type,)? why: MissingReason) -> Self {
                    Self { $($key,)? $($field: Reading::missing(why),)* }
                }

                /// Creates a sample with a plausible value of every metric, for tests and benchmarks. Values vary with `n`.
                /// Other fields are missing.
                #[must_use]
                pub fn example($($key: $key_type,)? n: u64) -> Self {
                    let mut sample = Self::missing($($key,)? MissingReason::NotYet);
                    for metric in Group::$group.readings() {
                        sample.set(metric, Reading::Is(metric.example(n)));
                    }
                    sample
                }

                /// Returns a metric's reading; `None` for a metric of another group.
                #[must_use]
                pub fn reading(&self, metric: Metric) -> Option<Reading<Number>> {
                    match metric {
                        $($(Metric::$metric => Some(self.$field.clone().map(<$type as Scalar>::number)),)?)*
                        _ => None,
                    }
                }

                /// Sets a metric's reading. A metric of another group has no effect.
                pub fn set(&mut self, metric: Metric, reading: Reading<Number>) {
                    match metric {
                        $($(Metric::$metric => self.$field = reading.map(<$type as Scalar>::of),)?)*
                        _ => {}
                    }
                }
            }
        )*

        /// A reading that is one number: a field of [`Sample`], [`SlowSample`] or [`HostSample`].
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Metric {
            $($($(
                #[doc = concat!("[`", stringify!($struct), "::", stringify!($field), "`].")]
                $metric,
            )?)*)*
        }

        impl Metric {
            /// All metrics, by group and in the order of the wire.
            pub const ALL: [Self; [$($($(stringify!($metric),)?)*)*].len()] = [$($($(Self::$metric,)?)*)*];

            /// Returns the group.
            #[must_use]
            pub const fn group(self) -> Group {
                match self { $($($(Self::$metric => Group::$group,)?)*)* }
            }

            /// Returns the name with its unit, as tables and files use it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($($(Self::$metric => concat!($prefix, stringify!($field)),)?)*)* }
            }

            /// Whether the value is an integer.
            #[must_use]
            pub const fn is_whole(self) -> bool {
                match self { $($($(Self::$metric => <$type as Scalar>::IS_WHOLE,)?)*)* }
            }

            /// Returns the unit.
            #[must_use]
            pub const fn unit(self) -> Unit {
                match self { $($($(Self::$metric => Unit::$unit,)?)*)* }
            }

            /// Returns the English label of `headroom doctor`.
            #[must_use]
            pub const fn label(self) -> &'static str {
                match self { $($($(Self::$metric => $doctor,)?)*)* }
            }

            /// Returns the index of the metric's series among those of its group; `None` if history has no series.
            #[must_use]
            pub const fn series(self) -> Option<usize> {
                match self { $($($(Self::$metric => optional!($($series)?),)?)*)* }
            }

            /// Returns the chart that shows the metric, and the metric's name in the language of the page.
            #[must_use]
            pub const fn chart(self) -> Option<(Chart, Key)> {
                match self { $($($(Self::$metric => optional!($((Chart::$chart, text::$text))?),)?)*)* }
            }

            /// Returns the family of `/metrics`; `None` if a metric has none, or one of its own form.
            #[must_use]
            pub const fn prometheus(self) -> Option<PrometheusFamily> {
                match self {
                    $($($(Self::$metric => optional!($(PrometheusFamily {
                        kind: FamilyKind::$kind,
                        name: $family,
                        help: $help,
                        label: optional!($($label)?),
                    })?),)?)*)*
                }
            }

            /// Returns the field of `nvidia-smi --query-gpu`.
            #[must_use]
            pub const fn nvidia_smi(self) -> Option<&'static str> {
                match self { $($($(Self::$metric => optional!($($smi)?),)?)*)* }
            }
        }
    };
}

pub(super) use {optional, readings};
