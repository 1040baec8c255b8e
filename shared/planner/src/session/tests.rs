//! What a session says of what it was given, and where.

use super::*;
use crate::{memory::program::Phase, plan::plan};

fn config(text: &str) -> Vec<Source> {
    vec![Source::File { name: "config/mine.py".into(), text: text.into() }]
}

fn arguments(texts: &[&str]) -> Vec<Source> {
    texts.iter().map(|text| Source::Override { text: (*text).into() }).collect()
}

fn on(gpu: &str, torch: &str) -> Options {
    Options { gpu: gpu.into(), torch: torch.into(), ..Options::default() }
}

/// Everything found, one a line: severity, place or key, sentence.
fn found(sources: &[Source], options: &Options) -> Vec<String> {
    let line = |finding: &Finding| {
        let at = finding.place.as_ref().map_or_else(|| finding.key.to_owned(), ToString::to_string);
        format!("{:?} {at}: {}", finding.severity, finding.message)
    };
    resolve(sources, options).findings.iter().map(line).collect()
}

#[track_caller]
fn blames(text: &str, key: &str, column: u32) {
    for (sources, place) in [
        (config(&format!("bias = False\n{text}\n")), Some(("config/mine.py", 2, column))),
        (arguments(&[&format!("--{}", text.replace(' ', ""))]), None),
    ] {
        let resolved = resolve(&sources, &Options::default());
        assert!(resolved.request.is_none(), "{text}");
        let errors: Vec<_> = resolved.findings.iter().filter(|finding| finding.severity == Severity::Error).collect();
        assert_eq!(errors.len(), 1, "{text}: {errors:?}");
        assert_eq!(errors[0].key, key, "{text}");
        let at = errors[0].place.as_ref().map(|place| (place.source.as_str(), place.line, place.column));
        assert_eq!(at, place, "{text}");
        assert!(errors[0].message.to_string().contains(key), "{}", errors[0].message);
    }
}

#[test]
fn error_names_its_key_and_position() {
    blames("dropout = 1.5", "dropout", 11);
    blames("n_layer = 100000", "n_layer", 11);
    blames("n_layer = 0", "n_layer", 11);
    blames("vocab_size = 0", "vocab_size", 14);
    blames("block_size = 0", "block_size", 14);
    blames("n_head = 7", "n_head", 10);
    blames("n_embd = 769", "n_embd", 10);
    blames("batch_size = 0", "batch_size", 14);
    blames("gradient_accumulation_steps = 0", "gradient_accumulation_steps", 31);
    blames("eval_interval = 0", "eval_interval", 17);
    blames("init_from = 'gpt3'", "init_from", 13);
}

#[test]
fn independent_errors_are_reported_together() {
    let text = "n_head = 7\nvocab_size = 0\ndropout = 2\nbatch_size = 0\neval_interval = 0\ndtype = 'int8'\n";
    let resolved = resolve(&config(text), &Options { gpu: "foobar".into(), ..Options::default() });
    let errors = resolved.findings.iter().filter(|finding| finding.severity == Severity::Error);
    let mut keys: Vec<&str> = errors.map(|finding| finding.key).collect();
    keys.sort_unstable();
    assert_eq!(keys, ["batch_size", "dropout", "dtype", "eval_interval", "gpu", "n_head", "vocab_size"]);
    // The heads are not compared with channels out of range.
    let resolved = resolve(&config("n_head = 7\nn_embd = 0\n"), &Options::default());
    assert_eq!(resolved.findings.iter().map(|finding| finding.key).collect::<Vec<_>>(), ["n_embd"]);
}

#[test]
fn a_patched_key_is_blamed_too() {
    let resolved = resolve(&config("eval_batch_size = 0"), &Options::default());
    assert!(resolved.findings.iter().any(|finding| finding.key == "eval_batch_size" && finding.place.is_some()));
}

#[test]
fn loaded_weights_have_no_more_positions() {
    let sources = config("init_from = 'gpt2'\nblock_size = 2048");
    assert_eq!(
        found(&sources, &Options::default()),
        ["Error config/mine.py:2:14: gpt2 has 1024 positions: nanoGPT stops in the first forward with block_size 2048"]
    );
    assert!(resolve(&config("init_from = 'gpt2'\nblock_size = 1024"), &Options::default()).request.is_some());
}

/// The dtype where nobody sets one, and whether what runs is compiled.
#[track_caller]
fn runs(gpu: &str, torch: &str, texts: &[&str], dtype: Dtype, compiled: bool) -> Vec<String> {
    let resolved = resolve(&arguments(texts), &on(gpu, torch));
    let train = resolved.request.expect("a request").train;
    assert_eq!((train.dtype, train.compile), (dtype, compiled), "{gpu}, {torch}, {texts:?}");
    found(&arguments(texts), &on(gpu, torch))
}

#[test]
fn the_default_dtype_is_what_that_pytorch_calls_supported() {
    // Emulation counts since 2.3; before, compute capability 8.0 alone.
    for (torch, dtype) in [("2.0", Dtype::Float16), ("2.2", Dtype::Float16), ("2.3", Dtype::Bfloat16)] {
        for gpu in ["Tesla T4", "V100 16GB"] {
            runs(gpu, torch, &["--compile=False"], dtype, false);
        }
        runs("RTX 3090", torch, &[], Dtype::Bfloat16, true);
    }
    assert_eq!(runs("Tesla T4", "2.2", &[], Dtype::Float16, true), Vec::<String>::new());
}

#[test]
fn bfloat16_below_8_0_is_not_compiled() {
    let said = runs("Tesla T4", "2.11", &[], Dtype::Bfloat16, false);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(said[0].starts_with("Warning compile: torch.compile skips bfloat16 on Tesla T4"), "{said:?}");
    assert!(said[1].starts_with("Warning dtype: Tesla T4 has no bfloat16 units"), "{said:?}");
    let said = runs("Tesla T4", "2.3", &[], Dtype::Bfloat16, false);
    assert!(said[0].starts_with("Warning compile: torch.compile of PyTorch 2.3 stops on Tesla T4"), "{said:?}");
    for dtype in [Dtype::Float16, Dtype::Float32] {
        let argument = format!("--dtype={}", dtype.name());
        assert_eq!(runs("Tesla T4", "2.11", &[&argument], dtype, true), Vec::<String>::new());
    }
    assert_eq!(runs("A100 80GB", "2.11", &[], Dtype::Bfloat16, true), Vec::<String>::new());
}

#[test]
fn torch_compile_stops_below_7_0() {
    for (torch, dtype) in [("2.2", Dtype::Float16), ("2.11", Dtype::Bfloat16)] {
        let said = runs("GTX 1080 Ti", torch, &[], dtype, false);
        assert!(said[0].starts_with("Warning compile: torch.compile stops on GeForce GTX 1080 Ti"), "{said:?}");
    }
    let said = runs("GTX 1080 Ti", "2.11", &["--compile=False", "--dtype=float32"], Dtype::Float32, false);
    assert_eq!(said, Vec::<String>::new());
    runs("V100 16GB", "2.11", &["--dtype=float16"], Dtype::Float16, true);
    runs("RTX 4070", "1.13", &[], Dtype::Bfloat16, false);
}

/// No fused kernel takes bfloat16 there: every layer keeps its attention in float32.
#[test]
fn emulated_bfloat16_holds_the_whole_attention() {
    let peak = |gpu: &str, dtype: &str| {
        let arguments = arguments(&["--compile=False", "--batch_size=1", "--eval_iters=0", dtype]);
        let plan = plan(resolve(&arguments, &on(gpu, "2.11")).request.expect("a request")).expect("a plan");
        plan.phases.iter().find(|peak| peak.phase == Phase::SteadyForward).map_or(0, |peak| peak.live_bytes)
    };
    let attention = 12 * 12 * 1024 * 1024 * 4_u64;
    let more = peak("Tesla T4", "--dtype=bfloat16") - peak("RTX 3090", "--dtype=bfloat16");
    assert!((attention..attention * 6 / 5).contains(&more), "{more}");
    let float16 = peak("Tesla T4", "--dtype=float16").abs_diff(peak("RTX 3090", "--dtype=float16"));
    assert!(float16 < 1 << 20, "{float16}");
}

#[test]
fn memory_alone_assumes_a_generation_with_notice() {
    let memory = |bytes| Options { gpu: String::new(), vram_bytes: Some(bytes), ..Options::default() };
    let said = found(&[], &memory(6 << 30));
    assert_eq!(said, ["Note vram: compute capability 8.9 is assumed, as for GeForce 40; name the GPU to use its own"]);
    assert_eq!(
        resolve(&[], &memory(512 << 20)).request.map(|request| request.machine.device.name),
        Some("512 MiB GPU (8.9)".into())
    );
    assert!(resolve(&[], &memory(0)).request.is_none());
    let named = Options { vram_bytes: Some(6 << 30), ..Options::default() };
    assert_eq!(found(&[], &named), Vec::<String>::new());
}

#[test]
fn a_gpu_that_is_there_has_the_memory_that_cuda_gives_of_it() {
    let mib = |mib: u64| Some(mib << 20);
    let of = |listed_as, total, reserved| {
        let options = Options::on_gpu(listed_as, total, reserved);
        (options.gpu, options.vram_bytes)
    };
    assert_eq!(of(Some("H100 80GB HBM3"), mib(81_559), mib(551)), ("H100 80GB HBM3".to_owned(), mib(81_008)));
    assert_eq!(of(Some("H200"), mib(143_771), None), ("H200".to_owned(), None));
    assert_eq!(of(None, mib(20_000), mib(300)), (String::new(), mib(19_700)));
    assert_eq!(of(None, mib(20_000), None), (String::new(), mib(20_000)));
    for nonsense in [(None, None), (Some(0), None), (mib(1), mib(2)), (None, mib(2))] {
        assert_eq!(of(None, nonsense.0, nonsense.1), (String::new(), None));
    }
}

/// A file that was not read, or a value that could not be, would be planned as nanoGPT's default: another run.
#[test]
fn unread_config_has_no_plan() {
    let named = |name: &str| Source::Named { name: name.to_owned() };
    for sources in [
        vec![named("my_config.py")],
        vec![named("my_config.py"), arguments(&["--batch_size=4"]).remove(0)],
        config("batch_size = 99999999999999999999"),
        config("compile = maybe"),
        config("batch_size = 12abc"),
        config("batch_size ="),
        config("batch_size = (4"),
        config("n_layer: int = 6 6"),
        config("n_layer = n_head = 6 6"),
        config("batch_size = 'big'"),
        config("block_size = int(open('block.txt').read())"),
        config("if cheap:\n    batch_size = 4\n"),
        config("exec(open('other.py').read())"),
        config("batch_size = 4\nexec(open('other.py').read())"),
        config("hello, world"),
        arguments(&["--compile=maybe"]),
        arguments(&["--compile"]),
        arguments(&["--batch-size=64"]),
    ] {
        let resolved = resolve(&sources, &Options::default());
        assert!(resolved.request.is_none(), "{sources:?}");
        let errors = resolved.settings.problems.as_slice().iter();
        let error = errors.filter(|problem| problem.severity == Severity::Error).map(ToString::to_string).next();
        assert!(error.is_some(), "{sources:?}");
        // The same by a link and by a config that is made of it.
        let link = crate::link::encode(&resolved.settings, &Options::default());
        let opened = crate::link::decode(&link);
        assert!(resolve_settings(opened.settings(), &Options::default()).request.is_none(), "{sources:?}: {link}");
        let again = Source::File { name: "again.py".into(), text: resolved.settings.to_config() };
        let is_nothing = resolved.settings.found_nothing();
        assert!(is_nothing || resolve(&[again], &Options::default()).request.is_none(), "{sources:?}");
    }
}

/// The page, its embedding, links and the command line resolve their input here.
#[test]
fn run_that_stops_has_no_plan() {
    let of_text = |text: &str| crate::nanogpt::from_pasted_text("config.py", text).read();
    for text in [
        "n_layer = 12.0",
        "batch_size = 12.0",
        "learning_rate = 1 / 0",
        "batch_size = 4\nn_layer = = 6",
        "batch_size = 4\n  n_layer = 6",
        "batch_size = 4\nraise SystemExit('no')",
        "batch_size = 4\nraise (",
        "batch_size = 4\nraise ValueError('it\\'s' 'two')\nn_layer = 6",
        "batch_size = 1 / 0\nbatch_size = 4",
        "dataset = 3",
        "batch_size = -3",
        "python train.py --foo=1",
        "python train.py --n_layer=12.0",
        "python train.py --dropout=0",
        "python train.py --vocab_size=65",
        "python train.py --out_dir",
        "python main.py --n_layer=6",
        "--foo=1 --batch_size=4",
    ] {
        let resolved = resolve_settings(of_text(text), &Options::default());
        assert!(resolved.request.is_none(), "{text}");
        // A link or a config made of it stops too, and so does one made of those.
        let mut again = resolved.settings;
        for _ in 0..2 {
            let link = crate::link::encode(&again, &Options::default());
            let reread = of_text(&crate::link::decode(&link).config);
            assert!(resolve_settings(reread.clone(), &Options::default()).request.is_none(), "{text}: {link}");
            assert_eq!(crate::link::encode(&reread, &Options::default()), link, "{text}");
            if again.found_nothing() {
                break;
            }
            again = of_text(&again.to_config());
            assert!(resolve_settings(again.clone(), &Options::default()).request.is_none(), "{text}");
        }
    }
}

/// Statements that a config may contain, and that Python executes without an error.
#[test]
fn valid_statement_stops_no_run() {
    let mut failed = Vec::new();
    for text in [
        "import os, sys as system",
        "from pathlib import Path",
        "print(f'batch {batch_size!r:>10}')",
        "x = [i ** 2 for i in range(10) if i]",
        "x: dict[str, int] = {'a': 1, **{}}",
        "a, *b = range(5)",
        "a = b = c = 3",
        "assert batch_size > 0, 'no'",
        "f = lambda x, *y, **z: x or y",
        "@decorator\ndef f(x: int = 3, /, *, y) -> int:\n    return x @ y\n",
        "class C(object):\n    batch_size = 4\n",
        "with open('x') as f:\n    pass\n",
        "try:\n    import bitsandbytes\nexcept ImportError as e:\n    raise\nelse:\n    pass\nfinally:\n    pass\n",
        "for i in range(3): print(i)",
        "while False:\n    break\nelse:\n    pass\n",
        "x = 1 if True else 2; y = not x; z = ~x",
        "x = 0x1F + 0b11 + 0o17 + 1_000 + 1e-3 + 3j",
        "x = 'a' 'b' \"c\" r'\\d' b'x' u'y' rb'z'",
        "x = (1,\n     2)\n",
        "x = 1 + \\\n    2\n",
        "x = d['key'][1:2, ::3].attr(1, *a, k=2, **b)",
        "x[0] = 3; x.y = 4; del x",
        "if (n := 10) > 5: pass",
        "x = ...",
        "x = a < b <= c != d is not e not in f",
        "x = yield_ if await_ else async_",
        "match x:\n    case 1:\n        pass\n    case _:\n        pass\n",
        "type Alias = int",
        "x += 1; x //= 2; x @= y; x >>= 1",
        "'''a docstring\nof two lines'''",
        "x = f'{a:{b}}' f\"{'x'}\"",
        "def f(): return\n",
        "global batch_size_2",
        "mine = 3",
        "n_heads = 12",
        "max_iters = 6e5",
        "dropout = 0",
        "compile = 0",
        "print('a', end='')  # comment",
        "#!/usr/bin/env python\n# -*- coding: utf-8 -*-\n",
    ] {
        let text = format!("batch_size = 4\n{text}\n");
        let resolved = resolve(&config(&text), &Options::default());
        failed.extend(resolved.settings.problems.first_stop().map(|stop| format!("{text}: {stop}")));
    }
    assert_eq!(failed, [""; 0]);
}

#[test]
fn version_without_rules_is_remarked_on() {
    for (torch, rules) in
        [("9.9", Some("2.11")), ("0.3", Some("1.0")), ("2.12", Some("2.11")), ("2.11.1", None), ("1.13", None)]
    {
        let options = Options { torch: torch.into(), ..Options::default() };
        let resolved = resolve(&config("batch_size = 4"), &options);
        let said: Vec<String> = resolved.findings.iter().map(|finding| finding.message.to_string()).collect();
        let of_rules = said.iter().find(|said| said.contains("the rules of"));
        assert_eq!(of_rules.is_some(), rules.is_some(), "{said:?}");
        assert!(
            rules.is_none_or(|rules| of_rules.is_some_and(|said| said.ends_with(&format!("the rules of {rules}"))))
        );
        assert!(resolved.request.is_some());
    }
}

/// nanoGPT ignores `vocab_size`: the vocabulary is the data set's.
#[test]
fn given_vocabulary_is_a_need_of_the_run() {
    for (text, given) in [
        ("vocab_size = 65", Some(65)),
        ("vocab_size = 50304", None),
        ("vocab_size = 50304\ndataset = 'shakespeare_char'", Some(50304)),
        ("vocab_size = 65\ndataset = 'shakespeare_char'", None),
        ("vocab_size = 65\ninit_from = 'gpt2'", None),
        ("batch_size = 4", None),
    ] {
        let request = resolve(&config(text), &Options::default()).request.expect("a plan");
        assert_eq!(request.given_vocab_size, given, "{text}");
    }
}

#[test]
fn values_without_memory_effect_are_optional() {
    for text in [
        "learning_rate = get()",
        "wandb_run_name = 'run' + str(time.time())",
        "device = 'cuda' if torch.cuda.is_available() else 'cpu'",
        "batch_size = get()\nbatch_size = 4",
        "def f():\n    batch_size = 4\n",
        "dtype = 'bfloat16' if torch.cuda.is_bf16_supported() else 'float16'",
        // train.py pasted whole: what follows its settings is the program.
        "batch_size = 4\nexec(open('configurator.py').read())\nif ddp:\n    gradient_accumulation_steps //= 2\n",
        "exec(open('config/eval_gpt2.py').read())",
        "",
    ] {
        assert!(resolve(&config(text), &Options::default()).request.is_some(), "{text}");
    }
}
