//! Links that read back, and what is not read.

use super::*;
use crate::session::resolve_settings;
use proptest::prelude::*;

fn settings(text: &str) -> Settings {
    read(&[Source::File { name: "config.py".into(), text: text.into() }])
}

fn values(settings: &Settings) -> Vec<(String, Value)> {
    let all = settings.values.iter().chain(settings.unknown.iter());
    all.map(|(name, setting)| (name.clone(), setting.value.clone())).collect()
}

#[test]
fn a_bracket_that_is_left_open_takes_no_other_key_with_it() {
    // The second is cut at the semicolon, and open then.
    for part in ["warmup_iters=x,s:{{)", "bias=x,s.{w:R;R"] {
        let link = decode(&format!("1&{part}&batch_size=4"));
        let config = link.config.strip_prefix("bias = unknown\n").unwrap_or(&link.config);
        assert_eq!((config, &link.unknown[..]), ("batch_size = 4\n", &[part.to_owned()][..]));
    }
}

#[test]
fn a_link_is_short_and_readable() {
    let settings = settings("batch_size = 64\ncompile = True\ndtype = 'float16'\n");
    assert_eq!(encode(&settings, &Options::default()), "1&batch_size=64&dtype=float16&compile=True&gpu=RTX%204070");
}

#[test]
fn a_text_travels_as_it_is_and_one_that_is_too_long_stays_out() {
    let options = Options { gpu: "L4".into(), other_processes_bytes: 5, ..Options::default() };
    let text = "Overriding: batch_size = 64\nbatch_size = 8  # 100 % & more=1\n";
    let link = decode(&encode_text(text, &options));
    assert_eq!((link.config.as_str(), &link.options), (text, &options));
    let long = encode_text(&"x = 1\n".repeat(10_000), &options);
    assert!(long.len() < 100 && decode(&long).options == options, "{long}");
}

#[test]
fn a_link_opens_to_the_same_settings() {
    let text =
        "batch_size = 8\ninit_from = 'ü 2'\ndtype = 'float16'\ndevice = '12'\nbackend = 'True'\nmine = None\nx = 3\n";
    let options = Options {
        other_processes_bytes: 123,
        vram_bytes: Some(5),
        attention: Attention::Math,
        torch: "2.5".into(),
        cross_entropy: CrossEntropy::Fused,
        ..Options::default()
    };
    let settings = settings(text);
    let link = decode(&encode(&settings, &options));
    assert_eq!(link.options, options);
    assert_eq!(values(&link.settings()), values(&settings));
    assert_eq!(link.unknown, Vec::<String>::new());
}

#[test]
fn names_and_paths_stay_at_home() {
    let config = "out_dir = '/home/me/secret'\nwandb_log = True\nwandb_project = 'p'\nwandb_run_name = 'r'\n\
                  dataset = '/data/of/mine'\nwandb_entity = 'me'\nmy_path = '/home/me'\nfiles = ['a']\nmine = 4\nbatch_size = 8\n";
    let link = |text: &str| encode(&settings(text), &Options::default());
    assert_eq!(link(config), "1&batch_size=8&mine=4&gpu=RTX%204070");
    // Its vocabulary follows from the data set, unless that is said.
    let of_characters = "dataset = 'shakespeare_char'\n";
    assert_eq!(link(of_characters), "1&dataset=shakespeare_char&gpu=RTX%204070");
    assert_eq!(link(&format!("{of_characters}vocab_size = 65")), "1&vocab_size=65&gpu=RTX%204070");
}

#[test]
fn the_next_version_is_reported() {
    let link = |version: u32| decode(&format!("#{version}&batch_size=4")).later_version;
    assert_eq!((link(VERSION), link(VERSION + 1)), (None, Some(VERSION + 1)));
}

#[test]
fn a_later_link_is_read_as_far_as_it_is_understood() {
    let link = decode("#7&batch_size=4&gpu=L4&new-thing=3");
    assert_eq!((link.later_version, link.options.gpu.as_str()), (Some(7), "L4"));
    assert_eq!(link.unknown, ["new-thing=3"]);
    assert_eq!(link.config, "batch_size = 4\n");
}

fn text_link(text: &str, keys: &str) -> Link {
    let mut fragment = String::from("1&gpu=L4&config=");
    percent_encode(text, &mut fragment);
    decode(&(fragment + keys))
}

#[test]
fn whole_text_is_kept_as_pasted() {
    for text in [
        "batch_size = 4 * 2  # mine\n",
        "--batch_size=64 --compile=False",
        "python train.py --batch_size=8",
        "ü & = %41 + #",
    ] {
        let link = text_link(text, "");
        assert_eq!((link.config.as_str(), link.options.gpu.as_str()), (text, "L4"));
        assert_eq!(link.unknown, [""; 0]);
    }
    assert_eq!(text_link("torchrun --nproc_per_node=4 train.py", "").options.world_size, 4);
    assert_eq!(text_link("torchrun --nproc_per_node=4 train.py", "&processes=2").options.world_size, 2);
}

#[test]
fn keys_beside_a_whole_text_override_it() {
    for (text, others) in [
        ("batch_size = 64  # mine\nn_layer = 6", "n_layer"),
        ("batch_size = 64\nn_layer = 6\n", "n_layer"),
        ("python train.py --batch_size=64 --n_layer=6", "n_layer"),
        ("--batch_size=64 --n_layer=6", "n_layer"),
        ("1&batch_size=64&n_layer=6&gpu=T4", "n_layer"),
    ] {
        let link = text_link(text, "&batch_size=3");
        let settings = link.settings();
        assert_eq!(settings.value("batch_size"), Some(Value::Int(3)), "{text}: {}", link.config);
        assert_eq!(settings.value(others), Some(Value::Int(6)), "{text}: {}", link.config);
        assert_eq!(link.options.gpu, "L4", "{text}");
    }
}

#[test]
fn a_link_may_be_the_whole_text_of_another() {
    let link = text_link("#7&batch_size=64&checkpointing=1&bogus-key=1", "");
    assert_eq!((link.config.as_str(), link.later_version), ("batch_size = 64\n", Some(7)));
    assert!(link.options.activation_checkpointing);
    assert_eq!(link.unknown, ["bogus-key=1"]);
    // However deep it is nested, the third level is a text as it came.
    let mut nested = String::from("1&batch_size=2");
    for _ in 0..5 {
        let mut outer = String::from("1&config=");
        percent_encode(&nested, &mut outer);
        nested = outer;
    }
    assert!(decode(&nested).config.starts_with("1&config="), "{:?}", decode(&nested));
    // A number alone is a version; a sum is a text.
    assert_eq!(text_link("64", "").config, "");
    assert_eq!(text_link("64 + x", "").config, "64 + x");
}

/// A page that embeds the calculator hands over a link: a run without a plan has none there either.
#[test]
fn unread_text_survives_nested_link() {
    let unread =
        read(&[Source::Named { name: "/home/me/mine.py".to_owned() }, Source::Override { text: "--n_layer=6".into() }]);
    let inner = encode(&unread, &Options::default());
    assert!(!inner.contains("home"), "{inner}");
    for link in [decode(&inner), text_link(&inner, "")] {
        let settings = link.settings();
        assert_eq!(
            (settings.unread[0].name.as_str(), settings.unread.len(), settings.value("n_layer")),
            ("mine.py", 1, Some(Value::Int(6)))
        );
        assert_eq!((settings.is_complete(), link.unknown.len()), (false, 0));
    }
}

#[test]
fn link_keeps_the_command_and_the_folder_of_an_unread_config() {
    let given = |text: &str| from_pasted_text("config", text).read();
    for (text, config) in [
        ("python train.py my_config.py --batch_size=8", "python train.py my_config.py --batch_size=8"),
        ("python train.py config/my_config.py", "python train.py config/my_config.py"),
        (
            "python train.py ../a/b.py --compile=False --dtype=float16",
            "python train.py ../a/b.py --dtype=float16 --compile=False",
        ),
        // The folders of an absolute path may contain a user's name.
        ("python train.py /home/me/b.py --n_layer=6", "python train.py b.py --n_layer=6"),
        // That would be nanoGPT's own config.
        ("python train.py /home/me/train_gpt2.py", "python train.py unread/train_gpt2.py"),
        ("python train.py my_config.py --batch_size=abc", "python train.py my_config.py --batch_size=abc"),
        (
            "exec(open('config/mine.py').read())\nbatch_size = 8\n",
            "exec(open('config/mine.py').read())\nbatch_size = 8\n",
        ),
        // An argument that a shell would split.
        ("python train.py 'my config.py' --n_layer=6", "exec(open('my config.py').read())\nn_layer = 6\n"),
        (
            "python train.py my_config.py --init_from='my model'",
            r"python train.py my_config.py --init_from=''\''my model'\'''",
        ),
    ] {
        let fragment = encode(&given(text), &Options::default());
        let link = decode(&fragment);
        assert_eq!(link.config, config, "{fragment}");
        assert!(!link.settings().is_complete(), "{fragment}");
        assert_eq!(encode(&link.settings(), &Options::default()), fragment);
    }
}

#[test]
fn link_carries_the_text_of_an_unreadable_value() {
    let problems = |settings: &Settings| -> Vec<String> {
        settings.problems.as_slice().iter().map(|problem| problem.message.to_string()).collect()
    };
    for (config, part) in [
        ("batch_size = abc\n", "batch_size=abc"),
        ("batch_size = 99999999999999999999\n", "batch_size=99999999999999999999"),
        ("compile = maybe\n", "compile=maybe"),
        ("init_from = abc\n", "init_from=%28abc%29"),
        ("n_layer = int(os.environ['L'])\n", "n_layer=int%28os.environ%5B%27L%27%5D%29"),
        ("batch_size = 'big'\n", "batch_size=%27big%27"),
    ] {
        let mut given = settings(config);
        let _ = given.get_u64("batch_size");
        let fragment = encode(&given, &Options::default());
        assert_eq!(fragment, format!("1&{part}&gpu=RTX%204070"));
        let mut received = decode(&fragment).settings();
        let _ = received.get_u64("batch_size");
        assert_eq!(problems(&received), problems(&given), "{config}");
        assert_eq!(encode(&received, &Options::default()), fragment);
    }
    let argument = read(&[Source::Override { text: "--batch_size=abc".into() }]);
    assert_eq!(encode(&argument, &Options::default()), "1&batch_size=abc&gpu=RTX%204070");
}

#[test]
fn link_to_text_without_settings_is_stable() {
    for (config, link) in [
        ("log_interval = f()\n", "1&log_interval=f%28%29"),
        ("log_interval = f()\ngpu = 3\n", "1&log_interval=f%28%29"),
        ("backend = abc\nmine = 5\n", "1&backend=%28abc%29&mine=5"),
        // Values that a text keeps private, or that have no meaning.
        ("out_dir = f('/home/me')\n", "1&config=%3F"),
        ("mine = '/home/me'\nmine = f('/home/me')\n", "1&config=%3F"),
        ("mine = f(3)\n", "1&config=%3F"),
    ] {
        let given = from_pasted_text("config", config).read();
        assert!(given.found_nothing(), "{config}");
        let fragment = encode(&given, &Options::default());
        assert_eq!(fragment, format!("{link}&gpu=RTX%204070"), "{config}");
        let received = decode(&fragment).settings();
        assert!(received.found_nothing(), "{config}");
        assert_eq!(encode(&received, &Options::default()), fragment, "{config}");
    }
}

/// Another config gives names other values, and a link has its keys in another order.
#[test]
fn unreadable_value_stays_unreadable_in_link_and_config() {
    for config in [
        "n_layer = get()\nbatch_size = n_layer\nn_layer = 6\n",
        "batch_size = mine\nmine = 5\n",
        "batch_size = 8 // bias\nbias = True\n",
        "x = get()\nbatch_size = (x +\n 1)\n",
        "if a:\n    batch_size = 4\n",
        "batch_size = abc  # &n_layer=3\n",
    ] {
        let given = settings(config);
        assert!(!given.is_complete(), "{config}");
        let link = decode(&encode(&given, &Options::default()));
        for text in [link.config, given.to_config()] {
            let received = settings(&text);
            let (received, given) = (received.unreadable(), given.unreadable());
            assert_eq!(received.collect::<Vec<_>>(), given.collect::<Vec<_>>(), "{config}: {text}");
        }
    }
    for argument in
        ["--batch_size=n_layer", "--compile=maybe(", "--batch_size=f()", "--batch_size=010", "--batch_size=5-3"]
    {
        let given = read(&[Source::Override { text: argument.to_owned() }]);
        let text = given.to_config();
        assert_eq!(settings(&text).is_complete(), given.is_complete(), "{argument}: {text}");
    }
}

#[test]
fn a_name_beyond_ascii_travels() {
    let link = decode(&encode(&settings("größe = 3\n"), &Options::default()));
    assert_eq!((link.config.as_str(), link.unknown.len()), ("größe = 3\n", 0));
}

#[test]
fn a_key_named_like_an_option_is_not_read_as_it() {
    let config = "processes = 4\nmath = 1\nvram = 7\n";
    assert_eq!(encode(&settings(config), &Options::default()), "1&gpu=RTX%204070");
    let link = decode("#1&processes=four&torch=new");
    assert_eq!((link.options, link.config.as_str()), (Options::default(), ""));
    assert_eq!(link.unknown, ["processes=four", "torch=new"]);
}

#[test]
fn options_with_unreadable_values_are_not_applied() {
    let flags = "math expandable checkpointing del_eval_logits del_train_logits adamw_foreach adamw_8bit chunked_loss fused_loss";
    for key in flags.split(' ').chain(["others", "context"]) {
        let part = format!("{key}=banana");
        let link = decode(&format!("1&{part}"));
        assert_eq!((link.options, &link.unknown[..]), (Options::default(), &[part][..]));
    }
    for (part, n_unknown, key) in [("vram=banana", 1, "gpu"), ("vram=12", 0, "vram"), ("vram=12.5", 0, "vram")] {
        let link = decode(&format!("1&gpu=RTX%204090&{part}"));
        assert_eq!(link.unknown.len(), n_unknown, "{part}");
        let resolved = resolve_settings(link.settings(), &link.options);
        assert!(resolved.request.is_none() && resolved.findings.iter().any(|finding| finding.key == key), "{part}");
    }
    assert!(resolve_settings(settings(""), &decode("1&vram=12GiB").options).request.is_some());
    assert!(decode("1&checkpointing&expandable=True&math=false").options.expandable_segments);
}

#[test]
fn a_key_sets_itself_and_nothing_else() {
    for value in ["batch_size=3", "1;batch_size=3", "", "(", "'''", "= 3", "$"] {
        let part = format!("n_layer={value}");
        let link = decode(&format!("#1&{part}&bias=True"));
        assert_eq!((link.config.as_str(), &link.unknown[..]), ("n_layer = unknown\nbias = True\n", &[part][..]));
    }
    assert_eq!(decode("#1&n_layer=12*2&n_head=f(2)").config, "n_layer = 12*2\nn_head = f(2)\n");
}

#[test]
fn a_long_string_reads_back() {
    let settings = settings("init_from = '\\0' * 1024\n");
    let link = decode(&encode(&settings, &Options::default()));
    assert_eq!(values(&link.settings()), values(&settings));
    assert_eq!(values(&settings).len(), 1);
}

#[test]
fn a_link_that_is_too_long_is_reported() {
    let link = decode(&format!("#1&init_from={}", "x".repeat(MAX_LINK_BYTES)));
    assert_eq!(link.unknown, [format!("1&init_from={}", "x".repeat(68))]);
}

/// A config with names and paths, and the link without them.
const PRIVATE: (&str, &str) =
    ("out_dir = '/home/me/secret'\nwandb_run_name = 'r'\nbatch_size = 8\n", "1&batch_size=8&gpu=RTX%204070");

#[test]
fn link_carries_a_second_run_that_no_other_page_reads() {
    let link = |text: &str| encode(&settings(text), &Options::default());
    let (run, other) = (link("batch_size = 64\n"), link(PRIVATE.0));
    let both = with_compared(run.clone(), &other);
    assert_eq!(both, format!("{run}&against=1%26batch_size%3D8%26gpu%3DRTX%25204070"));
    assert_eq!(split_compared(&both), (run.as_str(), Some(PRIVATE.1.to_owned())));
    assert_eq!(with_compared(run.clone(), &run), run, "a run against itself is the run");
    assert_eq!(split_compared(&run), (run.as_str(), None));
    for fragment in [both.clone(), format!("{both}&pin=300"), "1&against=1%26n_layer%3D3&batch_size=64".to_owned()] {
        let link = decode(&fragment);
        assert_eq!((link.config.as_str(), link.unknown), ("batch_size = 64\n", Vec::new()), "{fragment}");
    }
    // A fork's key of this name would be read as a run.
    assert_eq!(link("against = 3\nbatch_size = 64\n"), run);
}

#[test]
fn an_anchor_is_no_link() {
    assert_eq!(decode("#fixes"), Link::default());
}

proptest! {
    #[test]
    fn no_fragment_panics(fragment in ".{0,200}") {
        let _ = decode(&fragment);
    }

    #[test]
    fn no_text_in_a_fragment_panics(text in "\\PC{0,60}", keys in "[a-z0-9&=%_-]{0,40}") {
        let _ = text_link(&text, &keys);
    }

    #[test]
    fn any_two_runs_survive(run in "\\PC{0,40}", other in "\\PC{0,60}") {
        let run = format!("1&gpu={}", run.replace('&', ""));
        let both = with_compared(run.clone(), &other);
        let expected = (run != other).then_some(other);
        prop_assert_eq!(split_compared(&both), (run.as_str(), expected));
        let (link, alone) = (decode(&both), decode(&run));
        prop_assert_eq!((link.options, link.unknown), (alone.options, alone.unknown));
    }

    #[test]
    fn any_option_text_survives(gpu in "\\PC{0,30}") {
        let options = Options { gpu, ..Options::default() };
        let link = decode(&encode(&Settings::default(), &options));
        prop_assert_eq!(link.options, options);
    }
}
