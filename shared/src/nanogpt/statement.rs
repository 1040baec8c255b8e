//! A config file's statements: which are followed, which are passed over, and what is said about it.

use super::defaults;
use super::eval;
use super::lexer::{Kind, Lexer, Spot, Token};
use super::literal;
use super::names::Names;
use super::parser::{Fault, Reader, Why, is_keyword};
use super::patch::Site;
use super::problem::{Problem, Severity};
use super::settings::{Origin, Setting, Settings, Span};
use super::shortened;
use super::stock;
use super::value::Value;
use crate::text::{self, Text};

/// Reads a config file's text into `settings`.
pub(super) fn read_file(text: &str, source: usize, settings: &mut Settings) {
    Reader::new(text, source, settings).run();
}

/// Reads a stock config's text into `settings`. Its values have line 0: nobody has that text before them.
pub(super) fn read_stock(text: &str, source: usize, settings: &mut Settings) {
    let mut reader = Reader::new(text, source, settings);
    reader.is_stock = true;
    reader.run();
}

const AUGMENTED: [&str; 13] = ["+=", "-=", "*=", "/=", "//=", "%=", "**=", ">>=", "<<=", "&=", "|=", "^=", "@="];
/// What train.py asks the GPU for its own default of `dtype`.
const BY_DEVICE: &str = "is_bf16_supported";
/// Most names that a message lists.
const MAX_LISTED: usize = 5;

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
            // Text copied from a page may be indented throughout; Python refuses that, its values are plain enough.
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
                if !self.pass_line(&mut names) {
                    self.fault(fault);
                }
                self.forget(&names);
                return;
            }
            if self.token.is_op(";") {
                self.bump();
            }
            if self.token.ends_line() {
                return;
            }
        }
    }

    /// The names that a statement assigns, from its first token to the one in hand.
    fn targets_from(&self, first: Token<'a>) -> Vec<Token<'a>> {
        let mut names = Vec::new();
        let text = self.lexer.text.get(first.spot.offset..self.token.spot.offset).unwrap_or_default();
        let mut lexer = Lexer::new(text);
        let mut name = lexer.next();
        while name.kind == Kind::Name && !is_keyword(name.text) {
            // The token in hand ends the text.
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

    /// One statement up to its `;` or line end.
    fn statement(&mut self) -> Result<(), Fault<'a>> {
        let first = self.token;
        match (first.kind, first.text) {
            (Kind::Name, "pass") => {
                self.bump();
                self.statement_end()
            }
            (Kind::Name, "import" | "from") => {
                self.pass_simple(Severity::Note);
                Ok(())
            }
            (Kind::Name, "if" | "for" | "while" | "with" | "def" | "class" | "try" | "async") => {
                self.pass_block(true);
                Ok(())
            }
            // What belongs to a block that is spoken of at its head.
            (Kind::Name, "elif" | "else" | "except" | "finally") | (Kind::Op, "@") => {
                self.pass_block(false);
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
            (Kind::Name, name) if !is_keyword(name) => self.assignment(),
            _ => self.expression_statement(),
        }
    }

    /// `name = …`, or what turns out to be an expression.
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

    /// `a = b = value`, from behind the first `=`.
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
                self.bump();
            }
            value = self.opaque(start.spot);
        }
        if self.token.is_op("=") {
            self.pass_targets(&targets, start.spot);
            return Ok(());
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
            eval::binary(operator, &left, &right).map_err(|reason| Why { spot: op.spot, reason, name: "" })
        });
        self.commit(name, op, start.spot, value, true);
        Ok(())
    }

    /// An expression by itself, or the start of an assignment to something other than a name.
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
            self.pass_targets(&[], first.spot);
            return Ok(());
        }
        self.statement_end()?;
        // A string by itself is a comment.
        if first.kind != Kind::Str {
            let severity = if first.text == "print" || value.is_ok() { Severity::Note } else { Severity::Warning };
            self.say(severity, first.spot, text::not_evaluated(shortened(first.text)), None);
        }
        Ok(())
    }

    /// The file that `exec(open('NAME').read())` names; passes that call. Nothing else is touched.
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

    /// Executes another config: a stock one, or one that is not read. `configurator.py` ends the settings of train.py.
    fn execute(&mut self, name: &str, spot: Spot) {
        if name.rsplit(['/', '\\']).next() == Some("configurator.py") {
            self.is_program = true;
            return self.say(Severity::Note, spot, text::PROGRAM_FOLLOWS, None);
        }
        // What it sets comes after what stands before it.
        self.sites = Names::default();
        match stock::find(name) {
            Some(stock) => {
                read_stock(&stock.text(), self.source, self.settings);
                self.say(Severity::Note, spot, text::stock_file(shortened(name)), None);
            }
            None => {
                self.settings.unread.push(shortened(name));
                let message = text::file_not_read(shortened(name));
                self.say(Severity::Error, spot, message, Some(text::OPEN_OR_PASTE_IT.into()));
            }
        }
    }

    /// Passes the rest of a line that assigns to something other than one name.
    fn pass_targets(&mut self, targets: &[Token<'a>], start: Spot) {
        let mut names: Vec<Token<'a>> = targets.to_vec();
        // The targets are read a second time, to find their names.
        let mut again = Lexer::new(&self.lexer.text[start.offset..self.token.spot.offset]);
        let mut after_point = false;
        loop {
            let mut token = again.next();
            match token.kind {
                Kind::End => break,
                // Behind a point it is an attribute's name.
                Kind::Name if !is_keyword(token.text) && !after_point => {
                    token.spot.offset += start.offset;
                    (token.spot.line, token.spot.column) = (start.line, start.column);
                    names.push(token);
                }
                _ => {}
            }
            after_point = token.is_op(".");
        }
        self.pass_line(&mut names);
        self.passed(Severity::Warning, start, text::ONLY_SINGLE_NAMES.into(), &names);
    }

    /// Passes a statement that has no block, and says so.
    fn pass_simple(&mut self, severity: Severity) {
        let first = self.token;
        while !self.token.ends_line() && !self.token.is_op(";") {
            self.bump();
        }
        if self.token.kind == Kind::End {
            self.pass_one_line(&mut Vec::new());
        }
        self.say(severity, first.spot, text::not_evaluated(first.text), None);
    }

    /// Passes a statement with its block, and says so if it is the head or sets something.
    fn pass_block(&mut self, is_head: bool) {
        let first = self.token;
        let mut names = Vec::new();
        self.pass_line(&mut names);
        // What a function or a class assigns stays inside it.
        if matches!(first.text, "def" | "class" | "async") {
            names.clear();
        }
        if is_head || !names.is_empty() {
            self.passed(Severity::Warning, first.spot, text::block_not_evaluated(first.text), &names);
        }
    }

    /// Holds the names for not evaluated from here on.
    fn forget(&mut self, names: &[Token<'a>]) {
        // Behind its settings, train.py goes on to use them.
        for name in names.iter().filter(|_| !self.is_program) {
            let origin = self.origin(name.spot, name.end());
            self.settings.unevaluated.insert(name.text, origin);
            self.sites.remove(name.text);
        }
    }

    fn passed(&mut self, severity: Severity, spot: Spot, what: Text, names: &[Token<'a>]) {
        self.forget(names);
        let mut listed: Vec<&str> = Vec::new();
        for name in names {
            if listed.len() < MAX_LISTED && !listed.contains(&name.text) && defaults::find(name.text).is_some() {
                listed.push(name.text);
            }
        }
        if listed.is_empty() || self.is_program {
            return self.say(severity.min(Severity::Warning), spot, what, None);
        }
        let decides = names.iter().any(|name| defaults::decides_memory(name.text));
        let severity = if decides { Severity::Error } else { severity };
        self.say(severity, spot, text::may_set(what, text::names(listed)), Some(text::WRITE_ASSIGNMENT.into()));
    }

    /// Passes the rest of the logical line, and the block below it if it ends in a colon. Gathers the names that are
    /// assigned on the way. True if a bracket was never closed, which is then said.
    fn pass_line(&mut self, names: &mut Vec<Token<'a>>) -> bool {
        let header = self.lexer.indent;
        let (mut unclosed, opens_block) = self.pass_one_line(names);
        if opens_block {
            while self.token.kind == Kind::Newline {
                self.bump();
            }
            while self.token.kind != Kind::End && self.lexer.indent > header {
                unclosed |= self.pass_one_line(names).0;
                while self.token.kind == Kind::Newline {
                    self.bump();
                }
            }
        }
        unclosed
    }

    fn pass_one_line(&mut self, names: &mut Vec<Token<'a>>) -> (bool, bool) {
        let mut starts = true;
        let mut last = self.token;
        while !self.token.ends_line() {
            last = self.bump();
            let assigns =
                self.token.is_op("=") || (self.token.kind == Kind::Op && AUGMENTED.contains(&self.token.text));
            if starts && last.kind == Kind::Name && assigns {
                names.push(last);
            }
            starts = last.kind == Kind::Op && matches!(last.text, ":" | ";" | "=");
        }
        if self.token.kind != Kind::End {
            return (false, last.is_op(":"));
        }
        let Some(spot) = self.lexer.recover_unclosed() else { return (false, last.is_op(":")) };
        // What was passed after the bracket is now read again, each line for itself.
        names.retain(|name| name.spot.offset < spot.offset);
        self.bump();
        self.say(Severity::Error, spot, text::NEVER_CLOSED, Some(text::CLOSE_IT.into()));
        (true, false)
    }

    /// Whether the token in hand assigns.
    fn assigns(&self) -> bool {
        self.token.is_op("=") || (self.token.kind == Kind::Op && AUGMENTED.contains(&self.token.text))
    }

    fn statement_end(&self) -> Result<(), Fault<'a>> {
        if self.token.ends_line() || self.token.is_op(";") { Ok(()) } else { Err(self.unexpected()) }
    }

    fn commit(&mut self, target: Token<'a>, op: Token<'a>, start: Spot, value: Result<Value, Why<'a>>, alone: bool) {
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
                    self.settings.unevaluated.insert(key, origin);
                }
            }
        }
    }

    fn not_evaluated(&mut self, key: &str, why: Why<'a>) {
        let Why { spot, reason, name } = why;
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
        let what = if text.is_empty() { what.into() } else { text::of_name(shortened(text), what) };
        self.say(Severity::Error, spot, text::line_left_out(what), None);
    }

    fn origin(&self, start: Spot, end: usize) -> Origin {
        if self.is_stock {
            return Origin { source: self.source, line: 0, column: 0, span: Span { start: 0, end: 0 } };
        }
        let span = Span { start: start.offset, end };
        Origin { source: self.source, line: start.line, column: start.column, span }
    }

    fn say(&mut self, severity: Severity, spot: Spot, message: impl Into<Text>, hint: Option<Text>) {
        let source = self.settings.source_names.get(self.source).cloned().unwrap_or_default();
        let Spot { line, column, .. } = spot;
        let message = message.into();
        self.settings.problems.push(Problem { severity, source, line, column, message, hint });
    }
}

#[cfg(test)]
mod tests;
