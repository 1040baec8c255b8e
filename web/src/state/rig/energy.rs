//! The energy of a run, and its cost.

use headroom_protocol::{alert::Settings, history::History, metric::Metric, run::Run};

use super::values::{Fact, value};
use crate::text;

const JOULES_PER_KWH: f64 = 3_600_000.0;

/// The energy of a GPU during the newest part of a run, in joules: its mean power over the recorded times. Times before
/// the part's start or after its end are excluded.
pub fn recorded_joules(run: &Run, history: &History, now_ms: u64) -> Option<f64> {
    let (from_ms, to_ms) = run.part(now_ms)?;
    let power = &history.series.get(Metric::Power.place())?.mean;
    let joules = |(time_ms, watts): (&u64, &Option<f64>)| {
        let until_ms = time_ms.saturating_add(history.step_ms).min(to_ms);
        let within_ms = until_ms.saturating_sub(from_ms.max(*time_ms));
        watts.filter(|_| within_ms > 0).map(|watts| watts * within_ms as f64 / 1000.0)
    };
    let joules: Vec<f64> = history.times_ms.iter().zip(power).filter_map(joules).collect();
    (!joules.is_empty()).then(|| joules.iter().sum())
}

/// The energy of a run in joules, and whether its watchers measured it. If no watcher has measured the newest part, its
/// energy comes from the GPU's history.
fn energy(run: &Run, recorded_joules: Option<f64>) -> Option<(f64, bool)> {
    let earlier = run.earlier.and_then(|earlier| earlier.energy_joules);
    match (run.energy_joules, recorded_joules) {
        (counted, Some(recorded)) if counted == earlier => Some((earlier.unwrap_or(0.0) + recorded, false)),
        (counted, _) => counted.map(|joules| (joules, true)),
    }
}

/// The energy of a run and its cost, if known. `recorded_joules` is the energy from the GPU's history.
pub fn facts(run: &Run, settings: &Settings, recorded_joules: Option<f64>) -> Vec<Fact> {
    let Some((joules, is_counted)) = energy(run, recorded_joules) else { return vec![] };
    let kwh = joules / JOULES_PER_KWH;
    let note = if joules < 1e6 { value(joules / 1e3, 1, "kJ") } else { value(joules / 1e6, 2, "MJ") };
    let energy = amount(kwh, if kwh < 1.0 { 3 } else { 2 }, "kWh", is_counted);
    let price = settings.price_per_kwh.filter(|price| price.is_finite() && *price >= 0.0);
    let cost = price.map(|price| amount(kwh * price, 2, &settings.currency, is_counted));
    let energy = Fact { name: text::RIG_ENERGY, value: energy, note };
    let cost = cost.map(|cost| Fact { name: text::RIG_COST, value: cost, note: String::new() });
    std::iter::once(energy).chain(cost).collect()
}

/// An amount with `decimals` decimals. An amount that would round to zero is shown as less than the smallest one.
fn amount(amount: f64, decimals: u32, unit: &str, is_counted: bool) -> String {
    let least = 0.1_f64.powi(i32::try_from(decimals).unwrap_or(0));
    let (sign, shown) = match amount {
        _ if amount > 0.0 && amount < least / 2.0 => ("<", least),
        _ => (if is_counted { "" } else { "≈" }, amount),
    };
    let blank = if sign.is_empty() { "" } else { "\u{a0}" };
    format!("{sign}{blank}{}", value(shown, decimals, unit))
}

#[cfg(test)]
mod tests {
    use headroom_protocol::{
        history::Series,
        run::{EarlierParts, RunStatus},
    };

    use super::*;
    use crate::{
        state::rig::sample::{T, run},
        text::Key,
    };

    fn history(step_ms: u64, watts: &[Option<f64>]) -> History {
        let mut series = vec![Series::default(); Metric::FAST.len()];
        series[Metric::Power.place()].mean = watts.to_vec();
        let times_ms = (0..watts.len() as u64).map(|at| T + at * step_ms).collect();
        History { gpu: String::new(), from_ms: T, to_ms: T + step_ms * watts.len() as u64, step_ms, times_ms, series }
    }

    fn found(facts: &[Fact], name: Key) -> String {
        let fact = facts.iter().find(|fact| fact.name == name);
        fact.map(|fact| fact.value.replace('\u{a0}', " ")).unwrap_or_default()
    }

    #[test]
    fn energy_costs_what_the_owner_says() {
        let mut run = run("a");
        let settings = Settings { price_per_kwh: Some(0.5), currency: "€".to_owned(), ..Settings::default() };
        let so_far = facts(&run, &settings, Some(7_200_000.0));
        assert_eq!(found(&so_far, text::RIG_ENERGY), "≈ 2.00 kWh");
        assert_eq!(found(&so_far, text::RIG_COST), "≈ 1.00 €");
        let little = facts(&run, &settings, Some(100.0));
        assert_eq!(found(&little, text::RIG_ENERGY), "< 0.001 kWh");
        assert_eq!(found(&little, text::RIG_COST), "< 0.01 €");
        run.energy_joules = Some(360_000.0);
        assert_eq!(found(&facts(&run, &settings, Some(1.0)), text::RIG_ENERGY), "0.100 kWh");
        assert_eq!(found(&facts(&run, &Settings::default(), None), text::RIG_COST), "");
    }

    #[test]
    fn a_part_that_goes_on_adds_to_what_was_counted_of_those_before() {
        let earlier = Some(EarlierParts { took_ms: 5000, energy_joules: Some(360_000.0), since_ms: T + 20_000 });
        let mut run = Run { energy_joules: Some(360_000.0), earlier, ..run("a") };
        let history = history(10_000, &[Some(100.0), Some(200.0), Some(400.0)]);
        let recorded = recorded_joules(&run, &history, T + 25_000);
        assert_eq!(recorded, Some(2000.0), "neither the part before nor the pause");
        let so_far = |run: &Run| found(&facts(run, &Settings::default(), Some(36_000.0)), text::RIG_ENERGY);
        assert_eq!(so_far(&run), "≈ 0.110 kWh");
        run.energy_joules = Some(720_000.0);
        assert_eq!(so_far(&run), "0.200 kWh", "as it was counted");
        run.status = RunStatus::Queued;
        assert_eq!(recorded_joules(&run, &history, T + 25_000), None, "a queued run uses no energy");
    }

    #[test]
    fn energy_is_of_the_time_that_the_run_went_on() {
        let history = history(10_000, &[Some(200.0), None, Some(400.0)]);
        let mut run = run("a");
        assert_eq!(recorded_joules(&run, &history, T + 60_000), Some(6000.0));
        assert_eq!(recorded_joules(&run, &history, T + 25_000), Some(4000.0));
        run.ended_ms = Some(T + 3000);
        assert_eq!(recorded_joules(&run, &history, T + 60_000), Some(600.0), "its minute is still drawn");
        run.ended_ms = Some(T);
        assert_eq!(recorded_joules(&run, &history, T + 60_000), None, "it failed at once");
    }
}
