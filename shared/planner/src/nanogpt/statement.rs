//! Statements of a config file: evaluates supported ones, and skips others with a problem.

mod binding;
mod pass;

use super::defaults;
use super::eval;
use super::lexer::{Kind, Lexer, Spot, Token, is_keyword};
use super::literal;
use super::parser::{Fault, Reader, UnknownReason};
use super::problem::{Problem, Severity};
use super::settings::{Origin, Setting, Settings, Span};
use super::shortened;
use super::site::Site;
use super::value::Value;
use headroom_text::{self as text, Text};

/// Reads a config file's text into `settings`.
pub(super) fn read_file(text: &str, source: usize, settings: &mut Settings) {
    Reader::new(text, source, settings).run();
}

/// Reads a stock config's text into `settings`. Its values have line 0, because the user does not see that text.
pub(super) fn read_stock(text: &str, source: usize, settings: &mut Settings) {
    let mut reader = Reader::new(text, source, settings);
    reader.is_stock = true;
    reader.run();
}

pub(super) const AUGMENTED: [&str; 13] =
    ["+=", "-=", "*=", "/=", "//=", "%=", "**=", ">>=", "<<=", "&=", "|=", "^=", "@="];
/// Part of the expression in train.py that determines the default of `dtype` from the GPU.
const BY_DEVICE: &str = "is_bf16_supported";

impl<'a> Reader<'a, '_> {
    /// Reads to the end of the source.
    pub(super) fn run(&mut self) {
        let mut base = None;
        let mut said = false;
        loop {
            match self.token.kind {
                Kind::End => break,
                Kind::Newline => {
                    self.bump();
                    continue;
                }
                _ => {}
            }
            // Text copied from a page may be indented throughout. Python rejects it, but its values are unambiguous.
            let outer = *base.get_or_insert(self.lexer.indent);
            if (self.lexer.indent > 0 || outer != 0) && !said {
                said = true;
                let hint = Some(text::START_AT_COLUMN_1.into());
                self.say(Severity::Error, self.token.spot, text::WHITE_SPACE, hint);
            }
            self.logical_line();
        }
    }

    fn logical_line(&mut self) {
        loop {
            let first = self.token;
            if let Err(fault) = self.statement() {
                let mut names = self.targets_from(first);
                if !self.pass_line() {
                    self.fault(fault);
                }
                names.extend(self.bound_from(first, true));
                self.forget(&names);
                self.after_statement(first);
                return;
            }
            self.after_statement(first);
            if self.token.is_op(";") {
                self.bump();
            }
            if self.token.ends_line() {
                return;
            }
        }
    }

    /// Returns the names that a statement assigns, from its first token to the current one.
    fn targets_from(&self, first: Token<'a>) -> Vec<Token<'a>> {
        let mut names = Vec::new();
        let text = self.lexer.text.get(first.spot.offset..self.token.spot.offset).unwrap_or_default();
        let mut lexer = Lexer::new(text);
        let mut name = lexer.next();
        while name.kind == Kind::Name && !is_keyword(name.text) {
            // The current token ends the text.
            let op = match lexer.next() {
                op if op.kind == Kind::End => self.token,
                op => op,
            };
            let is_annotated = names.is_empty() && op.is_op(":");
            if op.kind != Kind::Op || !(op.is_op("=") || is_annotated || AUGMENTED.contains(&op.text)) {
                break;
            }
            let Spot { offset, .. } = name.spot;
            let spot = Spot { offset: first.spot.offset + offset, ..first.spot };
            names.push(Token { spot, ..name });
            name = lexer.next();
        }
        names
    }

    /// Parses one statement up to its `;` or the end of the line.
    fn statement(&mut self) -> Result<(), Fault<'a>> {
        let first = self.token;
        match (first.kind, first.text) {
            (Kind::Name, "pass") => {
                self.bump();
                self.statement_end()
            }
            (Kind::Name, "import" | "from") => {
                self.import();
                Ok(())
            }
            (Kind::Name, "if" | "for" | "while" | "with" | "def" | "class" | "try" | "async") => {
                self.pass_block(true);
                Ok(())
            }
            (Kind::Name, "match" | "type") if self.is_before_name() => {
                if first.text == "match" {
                    self.pass_block(true);
                } else {
                    self.pass_simple(Severity::Note);
                }
                Ok(())
            }
            // Part of a block whose problem is reported at its head.
            (Kind::Name, "elif" | "else" | "except" | "finally") | (Kind::Op, "@") => {
                self.pass_block(false);
                Ok(())
            }
            (Kind::Name, "raise") if !self.is_program => {
                self.raise();
                Ok(())
            }
            (
                Kind::Name,
                "del" | "assert" | "global" | "nonlocal" | "raise" | "return" | "yield" | "break" | "continue"
                | "await" | "lambda",
            ) => {
                self.pass_simple(Severity::Warning);
                Ok(())
            }
            (Kind::Name, name) if !is_keyword(name) => {
                self.assignment()?;
                self.pass_bindings(first);
                Ok(())
            }
            _ => {
                self.expression_statement()?;
                self.pass_bindings(first);
                Ok(())
            }
        }
    }

    /// Returns whether a name that is no keyword follows the current token, as after the soft keywords of Python.
    fn is_before_name(&self) -> bool {
        let next = { self.lexer }.next();
        next.kind == Kind::Name && !is_keyword(next.text)
    }

    /// Parses `name = …`, or an expression.
    fn assignment(&mut self) -> Result<(), Fault<'a>> {
        let (lexer, last_end) = (self.lexer, self.last_end);
        let name = self.bump();
        let op = self.token;
        if op.kind == Kind::Op && AUGMENTED.contains(&op.text) {
            self.bump();
            return self.augmented(name, op);
        }
        match op.text {
            "=" => {
                self.bump();
                self.assign(name, op)
            }
            ":" if op.kind == Kind::Op => {
                self.bump();
                let _type = self.expression()?;
                if !self.token.is_op("=") {
                    return self.statement_end();
                }
                let op = self.bump();
                self.assign(name, op)
            }
            _ => {
                (self.lexer, self.last_end, self.token) = (lexer, last_end, name);
                self.expression_statement()
            }
        }
    }

    /// Parses `a = b = value`, starting after the first `=`.
    fn assign(&mut self, first: Token<'a>, op: Token<'a>) -> Result<(), Fault<'a>> {
        let mut targets = vec![first];
        while self.token.kind == Kind::Name && !is_keyword(self.token.text) {
            let mut ahead = self.lexer;
            if !ahead.next().is_op("=") {
                break;
            }
            targets.push(self.bump());
            self.bump();
        }
        let start = self.token;
        let mut value = self.expression()?;
        if self.token.is_op(",") {
            while !self.token.ends_line() && !self.token.is_op(";") && !self.token.is_op("=") {
                if matches!(self.token.kind, Kind::Bad(_)) {
                    return Err(self.unexpected());
                }
                self.bump();
            }
            value = self.opaque(start.spot);
        }
        if self.token.is_op("=") {
            return self.pass_targets(&targets, start.spot);
        }
        self.statement_end()?;
        let alone = targets.len() == 1;
        for target in targets {
            self.commit(target, op, start.spot, value.clone(), alone);
        }
        Ok(())
    }

    fn augmented(&mut self, name: Token<'a>, op: Token<'a>) -> Result<(), Fault<'a>> {
        let start = self.token;
        let right = self.expression()?;
        self.statement_end()?;
        let operator = op.text.trim_end_matches('=');
        let value = self.variable(name).and_then(|left| {
            let right = right?;
            eval::binary(operator, &left, &right).map_err(|reason| UnknownReason { spot: op.spot, reason, name: "" })
        });
        self.commit(name, op, start.spot, value, true);
        Ok(())
    }

    /// Parses an expression statement, or an assignment to a target other than a name.
    fn expression_statement(&mut self) -> Result<(), Fault<'a>> {
        let first = self.token;
        if let Some(name) = self.executed() {
            self.execute(&name, first.spot);
            return self.statement_end();
        }
        let value = self.expression()?;
        if self.token.is_op(",") {
            while !self.token.ends_line() && !self.token.is_op(";") && !self.assigns() {
                self.bump();
            }
        }
        if self.assigns() {
            return self.pass_targets(&[], first.spot);
        }
        self.statement_end()?;
        // A string statement is a comment.
        if first.kind != Kind::Str {
            let severity = if first.text == "print" || value.is_ok() { Severity::Note } else { Severity::Warning };
            self.say(severity, first.spot, text::not_evaluated(shortened(first.text)), None);
        }
        Ok(())
    }

    /// Parses `exec(open('NAME').read())` and returns NAME. Consumes only that call.
    fn executed(&mut self) -> Option<String> {
        const CALL: [&str; 11] = ["exec", "(", "open", "(", "", ")", ".", "read", "(", ")", ")"];
        let (mut ahead, mut token, mut name, mut end) = (self.lexer, self.token, None, self.last_end);
        for expected in CALL {
            match expected {
                "" if token.kind == Kind::Str => name = literal::string(token.text).ok(),
                _ if token.text != expected || token.kind == Kind::Str => return None,
                _ => {}
            }
            (end, token) = (token.end(), ahead.next());
        }
        let Some(Value::Str(name)) = name else { return None };
        (self.lexer, self.token, self.last_end) = (ahead, token, end);
        Some(name)
    }

    /// Returns whether the current token is an assignment operator.
    fn assigns(&self) -> bool {
        self.token.is_op("=") || (self.token.kind == Kind::Op && AUGMENTED.contains(&self.token.text))
    }

    fn statement_end(&self) -> Result<(), Fault<'a>> {
        if self.token.ends_line() || self.token.is_op(";") { Ok(()) } else { Err(self.unexpected()) }
    }

    fn commit(
        &mut self,
        target: Token<'a>,
        op: Token<'a>,
        start: Spot,
        value: Result<Value, UnknownReason<'a>>,
        alone: bool,
    ) {
        let key = target.text;
        let origin = self.origin(start, self.last_end);
        if self.tracks {
            let in_place = alone && !self.lexer.text[op.spot.offset..self.last_end].contains(['\n', '\r']);
            let (op_start, op_end) = (op.spot.offset, op.end());
            let site = Site { op_start, op_end, value_end: self.last_end, in_place, is_read_later: false };
            self.sites.insert(key, site);
        }
        match value {
            Ok(value) => {
                if defaults::find(key).is_none() && !self.settings.unknown.contains_key(key) {
                    self.remark_unknown(target);
                }
                self.settings.set(key, Setting { value, origin });
            }
            Err(_) if key == "dtype" && self.lexer.text[start.offset..self.last_end].contains(BY_DEVICE) => {
                self.settings.values.remove(key);
                self.settings.unevaluated.remove(key);
                self.say(Severity::Note, start, text::DTYPE_BY_DEVICE, None);
            }
            Err(why) => {
                self.not_evaluated(key, why);
                if !self.is_program {
                    // The right side of an augmented assignment is a value of its own, which the key does not have.
                    let expression = op.is_op("=").then(|| self.lexer.text.get(start.offset..self.last_end));
                    let text = expression.flatten().unwrap_or_default();
                    self.settings.set_unevaluated(key, origin, text);
                }
            }
        }
    }

    fn not_evaluated(&mut self, key: &str, why: UnknownReason<'a>) {
        let UnknownReason { spot, reason, name } = why;
        let what = if name.is_empty() { reason.what.into() } else { text::of_name(shortened(name), reason.what) };
        let key_name = shortened(key);
        let harmless = defaults::find(key).is_none() || key.starts_with("wandb_");
        if defaults::decides_memory(key) && !self.is_program {
            let hint = (reason.severity != Severity::Error).then(|| text::WRITE_VALUE.into());
            return self.say(Severity::Error, spot, text::unreadable(key_name, what), hint);
        }
        let (severity, hint) = match (reason.severity, harmless) {
            (Severity::Error, _) => (Severity::Error, None),
            (_, true) => (Severity::Note, None),
            _ => (Severity::Warning, Some(text::WRITE_VALUE.into())),
        };
        let message = match self.settings.value(key) {
            Some(value) => text::stays(key_name, shortened(&value.to_string()), what),
            None => text::has_no_value(key_name, what),
        };
        self.say(severity, spot, message, hint);
    }

    fn remark_unknown(&mut self, target: Token<'a>) {
        if self.settings.problems.is_full() || target.text.starts_with('_') {
            return;
        }
        let message = text::not_a_setting(shortened(target.text));
        match defaults::nearest(target.text) {
            Some(near) => self.say(Severity::Warning, target.spot, message, Some(text::did_you_mean(near))),
            None => self.say(Severity::Note, target.spot, message, None),
        }
    }

    fn fault(&mut self, fault: Fault<'a>) {
        let Fault { spot, what, text } = fault;
        // Python evaluates a lambda.
        let severity = if what == text::NOT_READ { Severity::Warning } else { Severity::Error };
        if self.settings.problems.is_only_counted(severity) {
            return;
        }
        let hint = dashed_key(self.lexer.text, spot.offset).filter(|_| text == "-").map(text::did_you_mean);
        let what = if text.is_empty() { what.into() } else { text::of_name(shortened(text), what) };
        self.say(severity, spot, text::line_left_out(what), hint);
    }

    pub(super) fn origin(&self, start: Spot, end: usize) -> Origin {
        if self.is_stock {
            return Origin { source: self.source, line: 0, column: 0, span: Span { start: 0, end: 0 } };
        }
        let span = Span { start: start.offset, end };
        Origin { source: self.source, line: start.line, column: start.column, span }
    }

    pub(super) fn say(&mut self, severity: Severity, spot: Spot, message: impl Into<Text>, hint: Option<Text>) {
        let source = self.settings.source_names.get(self.source).cloned().unwrap_or_default();
        let Spot { line, column, .. } = spot;
        let message = message.into();
        self.settings.problems.push(Problem { severity, source, line, column, message, hint });
    }
}

/// Returns the key that a word around `at` is if its dashes are underscores.
fn dashed_key(text: &str, at: usize) -> Option<&'static str> {
    let is_other = |c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_');
    let (head, tail) = text.split_at_checked(at)?;
    let word = [head.rsplit(is_other).next(), tail.split(is_other).next()].map(Option::unwrap_or_default).concat();
    defaults::find(&word.replace('-', "_")).map(|key| key.name)
}

#[cfg(test)]
mod tests;
