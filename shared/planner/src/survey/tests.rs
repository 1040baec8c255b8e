//! Lists of one run on many GPUs and with many batch sizes.

use super::*;
use crate::{advice, hardware::devices, nanogpt::from_pasted_text};

fn settings(text: &str) -> Settings {
    from_pasted_text("config.py", text).read()
}

fn all(text: &str) -> Vec<GpuRow> {
    gpus(&settings(text), &Options::default(), 0..n_gpus())
}

#[test]
fn every_gpu_has_a_row_with_its_own_plan() {
    let rows = all("batch_size = 12\n");
    assert_eq!((rows.len(), n_gpus()), (devices().len(), devices().len()));
    for row in rows.iter().step_by(7) {
        let options = Options::default().with_device(row.device);
        let request = resolve_settings(settings("batch_size = 12\n"), &options).request.expect("a run");
        assert_eq!(request.machine.device.name, row.device.name);
        let plan = plan(request).expect("a plan");
        let summary = row.summary.expect("a plan");
        assert_eq!((summary.fit, summary.headroom_bytes), (plan.fit(), plan.headroom_bytes), "{}", row.device.name);
    }
    let n = |fit: Fit| rows.iter().filter(|row| row.summary.is_some_and(|summary| summary.fit == fit)).count();
    assert!(n(Fit::Fits) > 20 && n(Fit::Fails) > 10);
    let t4 = rows.iter().find(|row| row.device.name == "Tesla T4").expect("it is in the table");
    assert_eq!(t4.clouds, ["Colab T4", "Kaggle T4 x2", "AWS g4dn", "Azure NCasT4 v3"]);
    let slices = gpus(&settings("batch_size = 12\n"), &Options::default(), 8..16);
    assert_eq!(slices, rows[8..16]);
}

#[test]
fn smallest_gpu_is_one_on_which_the_run_fits_with_certainty() {
    let rows = all("batch_size = 12\n");
    let (n, found) = smallest(&rows);
    let found = found.expect("it fits large GPUs");
    assert!(n > 0 && found.summary.is_some_and(|summary| summary.band_bytes[0] >= 0));
    let smaller = rows.iter().filter(|row| row.device.total_bytes < found.device.total_bytes);
    assert!(smaller.clone().count() > 0);
    assert!(smaller.into_iter().all(|row| row.summary.is_none_or(|summary| summary.fit != Fit::Fits)));
    assert_eq!(smallest(&all("batch_size = 100000\n")), (0, None));
}

#[test]
fn run_without_a_plan_has_rows_without_figures() {
    assert!(all("compile = maybe\n").iter().all(|row| row.summary.is_none()));
}

#[test]
fn batch_sizes_surround_the_limit() {
    for (largest, may_fit, own, sizes) in [
        (Some(13), vec![15], 12, &[1, 2, 4, 8, 12, 13, 16][..]),
        (Some(300), vec![], 8, &[8, 16, 32, 64, 128, 256, 300, 301, 512]),
        (Some(8), vec![9, 10], 64, &[1, 2, 4, 8, 11, 16, 64]),
        (None, vec![1], 1, &[1, 2]),
        (None, vec![], 12, &[1, 2, 12]),
    ] {
        let found = BatchSizes { largest, may_fit, gap: None };
        assert_eq!(batch_sizes(&found, own), sizes, "{found:?}");
    }
}

#[test]
fn largest_size_fits_with_certainty_and_the_last_fails() {
    for text in ["compile = False\n", "n_layer = 24\nn_embd = 1024\nn_head = 16\n", "batch_size = 64\n"] {
        let (settings, options) = (settings(text), Options::default());
        let request = resolve_settings(settings.clone(), &options).request.expect("a run");
        let own = request.train.batch_size;
        let found = advice::batch_sizes(&settings, &options, &plan(request).expect("a plan"));
        let sizes = batch_sizes(&found, own);
        let fit = |size: u64| with_batch_size(&settings, &options, size).expect("a plan").fit;
        assert_eq!(fit(found.largest.expect("one sequence fits")), Fit::Fits, "{text}");
        assert_eq!(fit(*sizes.last().expect("sizes")), Fit::Fails, "{text}: {sizes:?}");
    }
}

#[test]
fn time_per_token_is_the_iteration_over_its_tokens() {
    let text = "batch_size = 4\nblock_size = 512\ngradient_accumulation_steps = 3\n";
    let summary = with_batch_size(&settings(text), &Options::default(), 8).expect("a plan");
    let (iteration, token) = (summary.iteration_seconds.expect("rates"), summary.seconds_per_token.expect("rates"));
    assert!((iteration / token - 8.0 * 512.0 * 3.0).abs() < 1e-6);
}

#[test]
fn energy_is_the_time_at_the_boards_power_limit() {
    let rows = all("batch_size = 12\n");
    for (name, watts) in [("GeForce RTX 4090", Some(450.0)), ("GB200", None), ("GeForce RTX 4090 Laptop GPU", None)] {
        let row = rows.iter().find(|row| row.device.name == name).expect(name);
        let summary = row.summary.expect("a plan");
        let seconds = summary.iteration_seconds.expect("rates");
        assert_eq!(summary.max_iteration_watt_hours, watts.map(|watts: f64| seconds * watts / 3600.0), "{name}");
    }
}
