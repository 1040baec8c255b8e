//! Statements as written in configs, and the problems of those that are skipped.

use super::super::{Source, read};
use super::*;

fn file(text: &str) -> Settings {
    read(&[Source::File { name: "c.py".into(), text: text.into() }])
}

/// Compares the value of `x` after `text`, in Python's notation, or the first problem, with `expected`.
#[track_caller]
fn check(text: &str, expected: &str) {
    let settings = file(text);
    let got =
        match settings.problems.as_slice().iter().find(|p| !p.message.to_string().starts_with("x is not a setting")) {
            Some(problem) => problem.to_string().split('\n').next().unwrap_or_default().to_owned(),
            None => settings.value("x").map_or("nothing".into(), |v| v.to_string()),
        };
    assert_eq!(got, expected, "{text}");
}

/// Compares all problems of `text` with `expected`.
#[track_caller]
fn said(text: &str, expected: &[&str]) -> Settings {
    let settings = file(text);
    let got: Vec<String> = settings.problems.as_slice().iter().map(ToString::to_string).collect();
    assert_eq!(got, expected, "{text}");
    settings
}

#[test]
fn arithmetic_follows_python() {
    for (text, expected) in [
        ("x = 5 * 8", "40"),
        ("x = 2 + 3 * 4 - 1", "13"),
        ("x = (2 + 3) * 4", "20"),
        ("x = 7 / 2", "3.5"),
        ("x = 8 / 2", "4.0"),
        ("x = 7 // 2", "3"),
        ("x = -7 // 2", "-4"),
        ("x = 7 // -2", "-4"),
        ("x = -7 % 3", "2"),
        ("x = 7 % -3", "-2"),
        ("x = -7.5 // 2", "-4.0"),
        ("x = -7.5 % 2", "0.5"),
        ("x = 7.5 % -2", "-0.5"),
        ("x = 2 ** 3 ** 2", "512"),
        ("x = -2 ** 2", "-4"),
        ("x = 2 ** -1", "0.5"),
        ("x = 6 * 10 ** -4", "0.0006000000000000001"),
        ("x = 0.1 ** 2", "0.010000000000000002"),
        ("x = 768 ** 0.5", "27.712812921102035"),
        ("x = 2.0 ** 0.3", "c.py:1:9: x has no value: a fractional or very large power is not evaluated"),
        ("x = 1 - 2 - 3", "-4"),
        ("x = 1 << 20", "1048576"),
        ("x = 6 & 3 | 8 ^ 1", "11"),
        ("x = ~5", "-6"),
        ("x = True + 1", "2"),
        ("x = 1e3", "1000.0"),
        ("x = - - 3", "3"),
        ("x = -9223372036854775808", "-9223372036854775808"),
    ] {
        check(text, expected);
    }
}

#[test]
fn comparisons_booleans_and_choices() {
    for (text, expected) in [
        ("x = 1 < 2 <= 2", "True"),
        ("x = 1 < 2 > 3", "False"),
        ("x = 1 == 1.0 == True", "True"),
        ("x = 'a' < 'b' and 'a' != 'c'", "True"),
        ("x = 'flash' in 'flash_attn'", "True"),
        ("x = 'q' not in 'flash'", "True"),
        ("x = None is None", "True"),
        ("x = not 1 == 2", "True"),
        ("x = not not 3", "True"),
        ("x = 0 or 5", "5"),
        ("x = 0 and 1 / 0", "0"),
        ("x = 1 or 1 / 0", "1"),
        ("x = 'a' if 2 > 1 else 1 / 0", "'a'"),
        ("x = 1 if False else 2 if False else 3", "3"),
        ("x = 'bfloat16' if batch_size > 8 else 'float16'", "'bfloat16'"),
    ] {
        check(text, expected);
    }
}

#[test]
fn functions_that_are_evaluated() {
    for (text, expected) in [
        ("x = int(7.9)", "7"),
        ("x = int(-7.9)", "-7"),
        ("x = int(' -042 ')", "-42"),
        ("x = int(True)", "1"),
        ("x = float(3)", "3.0"),
        ("x = float('1e-3')", "0.001"),
        ("x = str(0.00001) + str(True) + str(12)", "'1e-05True12'"),
        ("x = max(3, 1, 2)", "3"),
        ("x = min(3, 1.5,)", "1.5"),
        ("x = round(2.5)", "2"),
        ("x = abs(-3)", "3"),
        ("x = bool('')", "False"),
    ] {
        check(text, expected);
    }
}

#[test]
fn strings_join() {
    check("x = 'run' + '_' + str(batch_size)", "'run_12'");
    check("x = 'a' \"b\" '''c'''", "'abc'");
    check("x = ('a'\n  'b')", "'ab'");
    check("x = 'ab' * 3", "'ababab'");
}

#[test]
fn collections_are_kept_unchanged() {
    check("x = [1, 2,\n 3]", "[1, 2,\n 3]");
    check("x = {'a': [1]}", "{'a': [1]}");
    check("x = (1, 2)", "(1, 2)");
    check("x = 1, 2", "1, 2");
    check("x = ()", "()");
    check("x = b'ab'", "b'ab'");
}

#[test]
fn each_form_of_assignment() {
    check("x = _y = 3", "3");
    check("x: int = 3", "3");
    check("x: 'dict[str, int]' = 3", "3");
    check("x = 3; x += 1", "4");
    check("x = 7; x //= 2; x **= 2;", "9");
    check("x = 1 \\\n + 1", "2");
    check("x = (1 # one\n + 1)", "2");
    check("x=1\r\nx=2\rx=3", "3");
    check("\u{feff}x\t=\u{c}1 # größe", "1");
    check("x = 1\nx = 2", "2");
}

#[test]
fn earlier_names_and_defaults_are_known() {
    check(
        "n = 6\nx = n * 64",
        "nothing".replace("nothing", "c.py:1:1: n is not a setting of nanoGPT, which ignores it").as_str(),
    );
    check("_n = 6\nx = _n * 64", "384");
    check("batch_size *= 2\nx = batch_size * block_size", "24576");
}

#[test]
fn python_errors_are_errors() {
    check("x = 1 // 0", "c.py:1:7: x has no value: Python stops here: division by zero");
    check("x = 1.0 % 0", "c.py:1:9: x has no value: Python stops here: division by zero");
    check("x = 'a' + 1", "c.py:1:9: x has no value: Python stops here: unsupported operand types");
    check("x = true", "c.py:1:5: x has no value: `true` is not defined; Python's names are True, False and None");
    check("x = 5 5", "c.py:1:7: `5` is not expected here; the line is ignored");
    check("x =", "c.py:1:4: this line is incomplete; the line is ignored");
    check("x = 007", "c.py:1:5: Python rejects a whole number that starts with 0; the line is ignored");
    check("x = 'abc", "c.py:1:5: this string is not closed on its line; the line is ignored");
    check("x = “abc”", "c.py:1:5: a curly quotation mark; Python needs ' or \"; the line is ignored");
    check("x = (1, 2", "c.py:1:5: this bracket is never closed");
    check("x = 10.0 ** 400", "c.py:1:10: x has no value: Python stops here: the result is too large for a float");
    for text in ["x = 5 5", "x = 1 // 0", "x = ("] {
        assert!(file(text).problems.has_errors(), "{text}");
    }
}

#[test]
fn huge_numbers_are_refused_at_once() {
    check("x = 9 ** 9 ** 9 ** 9", "c.py:1:12: x has no value: a whole number beyond 64 bits is not evaluated");
    check("x = 10 ** 30", "c.py:1:8: x has no value: a whole number beyond 64 bits is not evaluated");
    check("x = 'a' * 10 ** 12", "c.py:1:9: x has no value: a string of more than 1,024 bytes is not evaluated");
}

#[test]
fn unevaluated_value_is_reported_and_rest_is_used() {
    let s = said(
        "import time\nwandb_run_name = 'ft-' + str(time.time())\nbatch_size = int(os.environ['B'])\nn_layer = 6\n",
        &[
            "c.py:1:1: `import` is not evaluated",
            "c.py:2:30: wandb_run_name stays 'gpt2': `time.time` is not evaluated",
            "c.py:3:18: batch_size cannot be read: `os.environ` is not evaluated\n\nhint: write the value as a literal",
        ],
    );
    assert_eq!(s.value("n_layer"), Some(Value::Int(6)));
    assert!(s.unevaluated.contains_key("batch_size"));
    let severities: Vec<Severity> = s.problems.as_slice().iter().map(|p| p.severity).collect();
    assert_eq!(severities, [Severity::Note, Severity::Note, Severity::Error]);
}

#[test]
fn an_unreadable_key_stays_unreadable_in_the_config_of_the_settings() {
    for line in ["batch_size &= f()", "batch_size += f()", "batch_size = f()", "batch_size = 8\nbatch_size *= f()"] {
        let settings = file(line);
        assert_eq!(settings.unreadable().collect::<Vec<_>>(), ["batch_size"], "{line}");
        let config = settings.to_config();
        assert_eq!(file(&config).unreadable().collect::<Vec<_>>(), ["batch_size"], "{line}: {config}");
    }
    // Python can evaluate the right side of an augmented assignment, but not what it is combined with.
    let settings = file("batch_size = f()\nbatch_size &= 1");
    assert_eq!(settings.to_config(), "batch_size = unknown\n");
}

#[test]
fn value_derived_from_unknown_is_unknown() {
    said(
        "batch_size = get()\ngradient_accumulation_steps = 480 // batch_size\n",
        &[
            "c.py:1:14: batch_size cannot be read: `get` is not evaluated\n\nhint: write the value as a literal",
            "c.py:2:38: gradient_accumulation_steps cannot be read: `batch_size` was not evaluated\n\nhint: write the value \
             as a literal",
        ],
    );
}

#[test]
fn train_pys_own_choice_of_dtype_depends_on_the_gpu() {
    let text = "dtype = 'bfloat16' if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else 'float16'";
    check(text, "c.py:1:9: dtype follows the GPU, as in train.py");
    assert!(file(text).is_complete());
}

#[test]
fn blocks_are_passed_whole() {
    let s = said(
        "if compile:\n    batch_size = 4\n\n    # more\n  \n    n_layer = 2; n_head = 2\nelse:\n    pass\nblock_size = 8\n",
        &[
            "c.py:1:1: this `if` block is not evaluated; it may set batch_size, n_layer, n_head\n\nhint: write the value \
             as a plain assignment",
        ],
    );
    assert_eq!(s.value("block_size"), Some(Value::Int(8)));
    assert_eq!(s.value("batch_size"), Some(Value::Int(12)));
    said(
        "def f(a):\n\treturn a\nfor i in range(3): dropout = i\nmatch a:\n  case 1:\n    bias = True\nseed = 1",
        &[
            "c.py:1:1: this `def` block is not evaluated",
            "c.py:3:1: this `for` block is not evaluated; it may set dropout\n\nhint: write the value as a \
             plain assignment",
            "c.py:4:1: this `match` block is not evaluated; it may set bias\n\nhint: write the value as a plain assignment",
            "c.py:7:1: seed is not a setting of nanoGPT, which ignores it",
        ],
    );
}

#[test]
fn targets_beyond_a_name_are_passed() {
    for text in ["n_layer, n_head = 6, 6", "[n_layer, n_head] = 6, 6", "(n_layer, n_head) = (6, 6)"] {
        let s = file(text);
        assert!(s.unevaluated.contains_key("n_layer") && s.unevaluated.contains_key("n_head"), "{text}");
        assert_eq!(s.problems.as_slice().len(), 1, "{text}");
    }
    let s = file("args.n_layer = 6");
    assert!(!s.unevaluated.contains_key("n_layer"));
    assert_eq!(s.problems.as_slice().len(), 1);
}

#[test]
fn key_that_a_statement_may_set_is_unknown() {
    for statement in [
        "for batch_size in [64]: pass",
        "print(batch_size := 64)",
        "[batch_size := 64]",
        "(batch_size := 64)",
        "x = (batch_size := 64)",
        "x = [y := 1, batch_size := 64]",
        "if (batch_size := 64): pass",
        "assert (batch_size := 64)",
        "if True:\n    x, batch_size = 1, 64",
        "if True:\n    batch_size: int = 64",
        "with open('x') as batch_size: pass",
        "import batch_size",
        "def batch_size(): pass",
        "del batch_size",
    ] {
        let settings = file(&format!("batch_size = 8\n{statement}\nn_layer = 6\n"));
        assert_eq!(settings.unreadable().collect::<Vec<_>>(), ["batch_size"], "{statement}");
        assert!(settings.problems.has_errors(), "{statement}");
        assert_eq!(settings.value("n_layer"), Some(Value::Int(6)), "{statement}");
        // A later line sets it again.
        assert!(file(&format!("{statement}\nbatch_size = 8\n")).unreadable().next().is_none(), "{statement}");
    }
    for statement in [
        "print(batch_size)",
        "print(x := batch_size)",
        "x = dict(batch_size=64)",
        "if batch_size > 8: learning_rate = 5e-4",
        "x = [batch_size for batch_size in (1, 2)]",
        "for x in range(batch_size): pass",
        "assert batch_size == 8",
        "def f(batch_size=64):\n    batch_size = 3\n    return batch_size",
        "tokens[batch_size] = 3",
        "import numpy as np",
    ] {
        let settings = file(&format!("batch_size = 8\n{statement}\n"));
        assert!(settings.is_complete() && settings.problems.first_stop().is_none(), "{statement}");
    }
}

#[test]
fn dash_in_a_key_is_a_syntax_error() {
    let hint = "did you mean batch_size?";
    for text in ["batch-size = 64\n", "batch-size += 64\n", "x = batch-size = 64\n"] {
        let settings = file(&format!("n_layer = 6\n{text}"));
        let stop = settings.problems.first_stop().expect("Python stops").to_string();
        assert!(stop.contains("`-` is not expected here") && stop.ends_with(hint), "{stop}");
    }
    assert!(file("64 = n_layer\n").problems.first_stop().is_some());
}

#[test]
fn a_slip_costs_one_line() {
    for slip in ["x = (1,", "x = '''", "x = 'a", "x = [[[", "x = 1 +", "$", "x = f(1", "x = {'a': (1]"] {
        let s = file(&format!("n_layer = 3\n{slip}\nbatch_size = 4\n# c\nn_head = (\n  5)\n"));
        assert_eq!(s.value("n_layer"), Some(Value::Int(3)), "{slip}");
        assert_eq!(s.value("batch_size"), Some(Value::Int(4)), "{slip}");
        assert!(s.problems.has_errors(), "{slip}");
    }
}

#[test]
fn a_misspelt_key_is_pointed_out() {
    said(
        "batchsize = 4",
        &["c.py:1:1: batchsize is not a setting of nanoGPT, which ignores it\n\nhint: did you mean \
                             batch_size?"],
    );
    assert_eq!(file("batchsize = 4").unknown["batchsize"].value, Value::Int(4));
}

#[test]
fn silent_statements() {
    said("'''A docstring\nof two lines.'''\npass; pass\n\n\n# comment\nvocab_size = 65\n", &[]);
}

#[test]
fn indented_text_is_read_with_one_remark() {
    let s = file("    batch_size = 4\n    n_layer = 2\n");
    assert_eq!((s.value("batch_size"), s.value("n_layer")), (Some(Value::Int(4)), Some(Value::Int(2))));
    assert_eq!(s.problems.as_slice().len(), 1);
    assert!(s.problems.has_errors());
}

#[test]
fn origins_point_at_the_expression() {
    let text = "# é\nn_head = 4; batch_size = 2 * 8 # x";
    let s = file(text);
    let origin = s.values["batch_size"].origin;
    assert_eq!((origin.line, origin.column), (2, 26));
    assert_eq!(&text[origin.span.start..origin.span.end], "2 * 8");
    assert_eq!(s.source_name(&origin), "c.py");
}
