//! Statements that set keys without naming them: star imports, `exec`, and writes to the dictionary of `globals()`.
//!
//! Such a statement may set any key. Unless a later line sets a key again, its value is unknown.

use super::defaults;
use super::lexer::{Kind, Lexer, Spot, Token, is_keyword};
use super::parser::Reader;
use super::problem::Severity;
use super::settings::UnreadFile;
use super::statement::AUGMENTED;
use super::{shortened, stock};
use headroom_text as text;

/// Methods of a dictionary that only read it.
const READING: [&str; 5] = ["items", "keys", "values", "get", "copy"];
/// Modules whose public names include no key of nanoGPT.
const WITHOUT_KEYS: [&str; 4] = ["math", "os", "sys", "torch"];
/// Maximum number of bytes of a statement that a message quotes.
const MAX_QUOTED_BYTES: usize = 40;

impl<'a> Reader<'a, '_> {
    /// Passes an import. A star import executes the module's file; other names are not evaluated.
    pub(super) fn import(&mut self) {
        let from = self.bump();
        let module_start = self.token.spot.offset;
        while !self.token.is_name("import") && !self.token.ends_line() && !self.token.is_op(";") {
            self.bump();
        }
        let is_from = from.text == "from" && self.token.is_name("import");
        if !is_from {
            return self.pass_simple_from(from, Severity::Note);
        }
        let module: String = self.lexer.text[module_start..self.last_end].split_whitespace().collect();
        self.bump();
        if self.token.is_op("*") {
            self.bump();
            let module = module.trim_start_matches('.');
            if WITHOUT_KEYS.contains(&module) {
                self.is_examined = false;
                return self.pass_simple_from(from, Severity::Note);
            }
            return self.execute(&format!("{}.py", module.replace('.', "/")), from.spot);
        }
        let mut names: Vec<Token<'a>> = Vec::new();
        while !self.token.ends_line() && !self.token.is_op(";") {
            let token = self.bump();
            match token.text {
                // `a as b` binds `b`.
                "as" => drop(names.pop()),
                name if token.kind == Kind::Name && !is_keyword(name) => names.push(token),
                _ => {}
            }
        }
        self.passed(Severity::Note, from.spot, text::not_evaluated("from"), &names);
    }

    /// Executes another config: a stock config, or one that is not read. `configurator.py` ends the settings of
    /// train.py.
    pub(super) fn execute(&mut self, name: &str, spot: Spot) {
        self.is_examined = false;
        if name.rsplit(['/', '\\']).next() == Some("configurator.py") {
            self.is_program = true;
            return self.say(Severity::Note, spot, text::PROGRAM_FOLLOWS, None);
        }
        // Its assignments come after the earlier ones.
        self.sites = super::Names::default();
        match stock::find(name) {
            Some(stock) => {
                super::statement::read_stock(&stock.text(), self.source, self.settings);
                self.say(Severity::Note, spot, text::stock_file(shortened(name)), None);
            }
            None => {
                let statement = self.lexer.text.get(spot.offset..self.last_end).unwrap_or_default().to_owned();
                let follows_settings = !self.settings.sets_nothing();
                self.settings.unread.push(UnreadFile { name: shortened(name), statement, follows_settings });
                let message = text::file_not_read(shortened(name));
                self.say(Severity::Error, spot, message, Some(text::OPEN_OR_PASTE_IT.into()));
            }
        }
    }

    /// Examines the statement that begins at `first` and ends before the current token, if it may set keys that it does
    /// not name.
    pub(super) fn after_statement(&mut self, first: Token<'a>) {
        if !std::mem::take(&mut self.is_examined) || self.is_program || self.is_stock {
            return;
        }
        let start = first.spot.offset;
        let text = self.lexer.text.get(start..self.last_end.max(start)).unwrap_or_default();
        let globals = match indirect(text) {
            Indirect::No => return,
            Indirect::AnyKey => {
                let names = defaults::KEYS.iter().map(|key| key.name).filter(|name| defaults::decides_memory(name));
                let origin = self.origin(first.spot, self.last_end);
                names.for_each(|name| self.settings.set_unevaluated(name, origin, ""));
                self.sites = super::Names::default();
                let quoted = text.lines().next().unwrap_or_default().trim_end();
                let quoted = match quoted.char_indices().nth(MAX_QUOTED_BYTES) {
                    Some((end, _)) => format!("{}…", &quoted[..end]),
                    None => quoted.to_owned(),
                };
                let hint = Some(text::WRITE_ASSIGNMENTS.into());
                return self.say(Severity::Error, first.spot, text::may_set_any(quoted), hint);
            }
            Indirect::Names(names) => names,
        };
        let origin = self.origin(first.spot, self.last_end);
        for name in globals {
            self.settings.set_unevaluated(name, origin, "");
            self.sites.remove(name);
        }
    }
}

/// The keys that a statement may set without an assignment of its own.
#[derive(Debug, PartialEq)]
enum Indirect<'a> {
    No,
    /// The names that its functions declare as `global`.
    Names(Vec<&'a str>),
    AnyKey,
}

/// Position in an expression that begins with `globals()`.
enum Access {
    None,
    /// After `globals`, with the number of tokens of `()` that follow.
    Call(u8),
    /// After the dot of a method.
    Method,
    /// Within brackets of this depth.
    Item(u32),
    /// After the closing bracket.
    AfterItem,
}

fn indirect(text: &str) -> Indirect<'_> {
    let (mut lexer, mut before, mut access, mut is_reading) = (Lexer::new(text), "", Access::None, false);
    let (mut globals, mut in_global) = (Vec::new(), false);
    // nanoGPT's own program.
    let is_own = text.contains("configurator.py");
    loop {
        let token = lexer.next();
        if token.kind == Kind::End {
            break;
        }
        let is_name = token.kind == Kind::Name;
        access = match access {
            Access::Call(0) if token.is_op("(") => Access::Call(1),
            Access::Call(1) if token.is_op(")") => Access::Call(2),
            // `vars(x)` is another dictionary.
            Access::Call(0 | 1) => Access::None,
            Access::Call(_) if token.is_op(".") => Access::Method,
            Access::Call(_) if token.is_op("[") => Access::Item(1),
            Access::Call(_) if is_reading => Access::None,
            Access::Call(_) => return Indirect::AnyKey,
            Access::Method if READING.contains(&token.text) => Access::None,
            Access::Method => return Indirect::AnyKey,
            Access::Item(1) if token.is_op("]") => Access::AfterItem,
            Access::Item(depth) if token.is_op("]") => Access::Item(depth - 1),
            Access::Item(depth) if token.is_op("[") => Access::Item(depth + 1),
            Access::AfterItem if token.is_op("=") || AUGMENTED.contains(&token.text) => return Indirect::AnyKey,
            Access::AfterItem => Access::None,
            other => other,
        };
        in_global &= !token.ends_line();
        match (before, token.text) {
            ("exec", "(") if !is_own => return Indirect::AnyKey,
            ("setattr", "(") | ("import", "*") => return Indirect::AnyKey,
            (_, "__dict__") if is_name => return Indirect::AnyKey,
            (_, "globals" | "locals" | "vars") if is_name => {
                access = Access::Call(0);
                is_reading = before == "in";
            }
            (_, "global") if is_name => in_global = true,
            (_, name) if in_global && is_name => globals.push(name),
            _ => {}
        }
        before = if token.kind == Kind::Str { "" } else { token.text };
    }
    match access {
        // The dictionary itself is the value, which may be changed by another name.
        Access::Call(2) if !is_reading => Indirect::AnyKey,
        _ if globals.is_empty() => Indirect::No,
        _ => Indirect::Names(globals),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nanogpt::{Settings, Source, Value, read};

    fn file(text: &str) -> Settings {
        read(&[Source::File { name: "c.py".into(), text: text.into() }])
    }

    #[test]
    fn star_import_names_the_file_that_was_not_read() {
        for (text, name) in [
            ("from base import *\nbatch_size = 8\n", "base.py"),
            ("batch_size = 8\nfrom .base import *  # shared\n", "base.py"),
            ("from config.mine import *; batch_size = 8\n", "config/mine.py"),
        ] {
            let settings = file(text);
            assert_eq!(settings.unread.first().map(|file| file.name.as_str()), Some(name), "{text}");
            assert!(!settings.is_complete() && settings.value("batch_size") == Some(Value::Int(8)), "{text}");
        }
        let settings = file("from config.train_shakespeare_char import *\nbatch_size = 8\n");
        assert!(settings.is_complete());
        assert_eq!(settings.value("n_layer"), Some(Value::Int(6)), "a stock config is known by name");
        let settings = file("exec(open('config/train_shakespeare_char.py').read())\n");
        assert!(settings.is_complete() && settings.value("n_layer") == Some(Value::Int(6)));
        let settings = file("exec(open('config/train_shakespeare_char.py').read()); exec(text)\n");
        assert!(!settings.is_complete(), "the second statement may set any key");
    }

    #[test]
    fn statements_that_may_set_any_key_leave_no_key_known() {
        for statement in [
            "exec(open(x).read())",
            "exec(open('base.py', encoding='utf-8').read())",
            "exec(text)",
            "globals().update(cfg)",
            "globals().update(\n    batch_size=64,\n)",
            "globals()['batch_size'] = 64",
            "globals()[name] += 1",
            "g = globals()",
            "vars().update(cfg)",
            "import *",
            "if True:\n    from base import *",
            "for k, v in cfg.items():\n    globals()[k] = v",
            "with open(path) as f:\n    exec(f.read())",
            "def load():\n    globals().update(cfg)",
            "setattr(sys.modules[__name__], 'batch_size', 64)",
            "sys.modules[__name__].__dict__['batch_size'] = 64",
            "done = exec(text)",
        ] {
            for text in [format!("batch_size = 8\n{statement}\n"), format!("{statement}\nbatch_size = 8\n")] {
                let settings = file(&text);
                assert!(!settings.is_complete(), "{text}");
                let mut problems = settings.problems.as_slice().iter();
                assert!(problems.any(|problem| problem.message.is(&text::may_set_any(""))), "{text}");
                let opened = crate::link::decode(&crate::link::encode(&settings, &crate::session::Options::default()));
                assert!(!opened.settings().is_complete(), "{text}: {}", opened.config);
            }
        }
    }

    #[test]
    fn keys_set_after_such_a_statement_are_known() {
        let deciding = defaults::KEYS.iter().filter(|key| defaults::decides_memory(key.name));
        let all: String = deciding
            .map(|key| format!("{} = {}\n", key.name, key.default.value().map_or("None".into(), |v| v.to_string())))
            .collect();
        assert!(file(&format!("exec(text)\n{all}")).is_complete());
        assert!(!file(&format!("{all}exec(text)\n")).is_complete());
    }

    #[test]
    fn reading_all_keys_sets_none() {
        for statement in [
            "config_keys = [k for k, v in globals().items() if not k.startswith('_')]",
            "config = {k: globals()[k] for k in config_keys}",
            "x = 'lr' in globals()",
            "exec(open('configurator.py').read())",
            "if True:\n    exec(open('configurator.py').read())",
            "from math import *",
            "import numpy as np",
            "from contextlib import nullcontext",
            "note = 'exec(x) and globals().update(y)'",
            "print(vars(x))",
        ] {
            let text = format!("batch_size = 8\n{statement}\n");
            assert!(file(&text).is_complete(), "{text}: {:?}", file(&text).problems);
        }
    }

    #[test]
    fn imported_and_global_names_are_not_known() {
        for (text, key) in [
            ("from base import batch_size, learning_rate\n", "batch_size"),
            ("from base import (x as n_layer)\n", "n_layer"),
            ("def small():\n    global batch_size\n    batch_size = 2\nsmall()\n", "batch_size"),
        ] {
            let settings = file(text);
            assert_eq!(settings.unreadable().collect::<Vec<_>>(), [key], "{text}");
        }
        assert!(file("from base import n_layer as layers\n").is_complete());
    }
}
