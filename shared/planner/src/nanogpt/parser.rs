//! Recursive-descent parser of Python expressions that evaluates them directly, without a syntax tree.
//!
//! There are two kinds of failure. A [`Fault`] is a syntax error and ends its line. A [`UnknownReason`] is a valid expression
//! with an unknown value; parsing continues after it.

use super::eval::{self, BUILTINS};
use super::lexer::{Kind, Lexer, Spot, Token, is_keyword};
use super::literal::{self, MAX_VALUE_BYTES};
use super::names::Names;
use super::problem::Severity;
use super::reason::{EvaluatedValue, Reason, skipped, stops};
use super::settings::{Lookup, Settings};
use super::site::Site;
use super::value::Value;
use headroom_text::{self as text, Key};

/// Names whose statement is examined.
const EXAMINED: [&str; 8] = ["exec", "globals", "locals", "vars", "setattr", "__dict__", "import", "global"];

/// Maximum nesting depth of an expression. Configs reach about 5; the bound limits the stack, also in a browser.
const MAX_DEPTH: u32 = 32;
/// Maximum number of arguments examined per call.
const MAX_ARGUMENTS: usize = 64;

/// A syntax error.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fault<'a> {
    pub spot: Spot,
    pub what: Key,
    /// The text at `spot`, if it helps to show it.
    pub text: &'a str,
}

/// Reason why a value is unknown, and the part of the expression that causes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct UnknownReason<'a> {
    pub spot: Spot,
    pub reason: Reason,
    /// The name that the reason refers to, or empty.
    pub name: &'a str,
}

pub(super) type Eval<'a> = Result<Value, UnknownReason<'a>>;
pub(super) type ParsedExpression<'a> = Result<Eval<'a>, Fault<'a>>;

/// Parser of one source, with one token of lookahead.
pub(super) struct Reader<'a, 's> {
    pub lexer: Lexer<'a>,
    pub token: Token<'a>,
    /// Offset of the first byte after the token before `token`.
    pub last_end: usize,
    /// Known names, and destination of the results.
    pub settings: &'s mut Settings,
    /// Index of this source in the list of sources.
    pub source: usize,
    /// Position at which each key got its final value. Maintained only if `tracks` is set.
    pub sites: Names<Site>,
    pub tracks: bool,
    /// Restricts expressions as `ast.literal_eval` does: no names, and no operators except one sign.
    pub literal_only: bool,
    /// Whether the text is a stock config's, which is not part of any source.
    pub is_stock: bool,
    /// Whether the settings of train.py have ended and its program follows.
    pub is_program: bool,
    /// Whether the current statement contains a name of [`is_examined`].
    pub is_examined: bool,
    depth: u32,
}

const AND: u8 = 2;
const NOT: u8 = 3;
const COMPARISON: u8 = 4;
const UNARY: u8 = 11;

const NOT_LITERAL: Reason = skipped(text::NO_COMPUTING);

impl<'a, 's> Reader<'a, 's> {
    pub fn new(text: &'a str, source: usize, settings: &'s mut Settings) -> Self {
        let mut lexer = Lexer::new(text);
        let token = lexer.next();
        let sites = Names::default();
        Self {
            lexer,
            token,
            last_end: 0,
            settings,
            source,
            sites,
            tracks: false,
            literal_only: false,
            is_stock: false,
            is_program: false,
            is_examined: false,
            depth: 0,
        }
    }

    /// Returns the current token and advances to the next one.
    pub fn bump(&mut self) -> Token<'a> {
        let token = self.token;
        self.last_end = token.end();
        self.is_examined |= is_examined(&token);
        self.token = self.lexer.next();
        token
    }

    /// Parses one expression, without a bare tuple.
    pub fn expression(&mut self) -> ParsedExpression<'a> {
        self.deeper(|this| {
            let value = this.binary(1)?;
            if !this.token.is_name("if") {
                return Ok(value);
            }
            this.bump();
            let condition = this.binary(1)?;
            if !this.token.is_name("else") {
                return Err(this.unexpected());
            }
            this.bump();
            let otherwise = this.expression()?;
            let spot = this.token.spot;
            Ok(condition.and_then(|c| match truth(&c, spot) {
                Ok(true) => value,
                Ok(false) => otherwise,
                Err(why) => Err(why),
            }))
        })
    }

    /// Returns the fault for a token that is not allowed here.
    pub fn unexpected(&self) -> Fault<'a> {
        let Token { kind, text, spot } = self.token;
        match kind {
            Kind::Bad(what) => Fault { spot, what, text: "" },
            Kind::Newline | Kind::End => Fault { spot, what: text::SOMETHING_MISSING, text: "" },
            _ => Fault { spot, what: text::NOT_EXPECTED, text },
        }
    }

    fn deeper(&mut self, parse: impl FnOnce(&mut Self) -> ParsedExpression<'a>) -> ParsedExpression<'a> {
        if self.depth >= MAX_DEPTH {
            return Err(Fault { spot: self.token.spot, what: text::NESTED_TOO_DEEPLY, text: "" });
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    /// Parses binary operators of at least precedence `min`, by precedence climbing.
    fn binary(&mut self, min: u8) -> ParsedExpression<'a> {
        let mut left = self.operand(min)?;
        while let Some((op, precedence)) = self.peek_binary().filter(|(_, p)| *p >= min) {
            let spot = self.token.spot;
            if precedence == COMPARISON {
                left = self.comparisons(left)?;
                continue;
            }
            self.bump();
            let right = self.binary(precedence + 1)?;
            left = match op {
                "and" | "or" => left.and_then(|l| match truth(&l, spot) {
                    Ok(decided) if decided == (op == "or") => Ok(l),
                    Ok(_) => right,
                    Err(why) => Err(why),
                }),
                _ => left.and_then(|l| right.and_then(|r| self.placed(spot, eval::binary(op, &l, &r)))),
            };
            if self.literal_only {
                left = Err(UnknownReason { spot, reason: NOT_LITERAL, name: "" });
            }
        }
        Ok(left)
    }

    /// Parses `a < b <= c …`, chained as in Python.
    fn comparisons(&mut self, first: Eval<'a>) -> ParsedExpression<'a> {
        let mut result: Eval<'a> = Ok(Value::Bool(true));
        let mut left = first;
        while let Some((mut op, COMPARISON)) = self.peek_binary() {
            let spot = self.bump().spot;
            if op == "is" && self.token.is_name("not") {
                self.bump();
                op = "is not";
            } else if op == "not" {
                if !self.token.is_name("in") {
                    return Err(self.unexpected());
                }
                self.bump();
                op = "not in";
            }
            let right = self.binary(COMPARISON + 1)?;
            let holds = match (&left, &right) {
                (Ok(l), Ok(r)) => self.placed(spot, eval::compare(op, l, r).map(Value::Bool)),
                (Err(why), _) | (_, Err(why)) => Err(*why),
            };
            // Python stops at the first comparison that is false.
            if let Ok(Value::Bool(true)) = result {
                result = holds;
            }
            left = right;
        }
        Ok(result)
    }

    fn peek_binary(&self) -> Option<(&'a str, u8)> {
        let precedence = match (self.token.kind, self.token.text) {
            (Kind::Name, "or") => 1,
            (Kind::Name, "and") => AND,
            (Kind::Name, "in" | "is" | "not") => COMPARISON,
            (Kind::Op, "<" | ">" | "<=" | ">=" | "==" | "!=") => COMPARISON,
            (Kind::Op, "|") => 5,
            (Kind::Op, "^") => 6,
            (Kind::Op, "&") => 7,
            (Kind::Op, "<<" | ">>") => 8,
            (Kind::Op, "+" | "-") => 9,
            (Kind::Op, "*" | "/" | "//" | "%" | "@") => 10,
            _ => return None,
        };
        Some((self.token.text, precedence))
    }

    /// Parses an operand of a binary operator: `not x`, `-x`, `x ** y`, or a plain value.
    fn operand(&mut self, min: u8) -> ParsedExpression<'a> {
        let Token { kind, text, spot } = self.token;
        if kind == Kind::Name && text == "not" && min <= NOT {
            self.bump();
            let value = self.deeper(|this| this.binary(NOT))?;
            return Ok(value.and_then(|v| truth(&v, spot)).map(|t| Value::Bool(!t)).and_then(|v| self.plain(spot, v)));
        }
        if kind == Kind::Op && matches!(text, "-" | "+" | "~") {
            self.bump();
            let digits = self.token;
            let signed = digits.kind == Kind::Op && matches!(digits.text, "-" | "+" | "~");
            let value = self.deeper(|this| this.operand(UNARY))?;
            let number = matches!(value, Ok(Value::Int(_) | Value::Float(_))) || digits.kind == Kind::Number;
            if self.literal_only && (signed || text == "~" || !number) {
                return Ok(Err(UnknownReason { spot, reason: NOT_LITERAL, name: "" }));
            }
            // The only 64-bit integer whose digits without the sign overflow.
            if text == "-" && digits.text == "9223372036854775808" && self.last_end == digits.end() {
                return Ok(Ok(Value::Int(i64::MIN)));
            }
            return Ok(value.and_then(|v| self.placed(spot, eval::unary(text, &v))));
        }
        let base = self.primary()?;
        if !self.token.is_op("**") {
            return Ok(base);
        }
        let spot = self.bump().spot;
        let exponent = self.deeper(|this| this.operand(UNARY))?;
        let power = base.and_then(|b| exponent.and_then(|e| self.placed(spot, eval::binary("**", &b, &e))));
        Ok(power.and_then(|v| self.plain(spot, v)))
    }

    /// Returns the result of a computation, or an error if only a literal is allowed.
    fn plain(&self, spot: Spot, value: Value) -> Eval<'a> {
        if self.literal_only { Err(UnknownReason { spot, reason: NOT_LITERAL, name: "" }) } else { Ok(value) }
    }

    fn placed(&self, spot: Spot, computed: EvaluatedValue) -> Eval<'a> {
        computed.map_err(|reason| UnknownReason { spot, reason, name: "" })
    }

    /// Parses a literal, a name or a bracket, and any calls and subscripts after it.
    fn primary(&mut self) -> ParsedExpression<'a> {
        let first = self.token;
        let mut value = match first.kind {
            Kind::Number => {
                self.bump();
                match literal::number(first.text) {
                    Err(reason) if reason.severity == Severity::Error => {
                        return Err(Fault { spot: first.spot, what: reason.what, text: "" });
                    }
                    computed => self.placed(first.spot, computed),
                }
            }
            Kind::Str => self.strings()?,
            Kind::Name => self.name()?,
            Kind::Op if first.text == "(" => self.parenthesis()?,
            Kind::Op if first.text == "..." => {
                self.bump();
                self.opaque(first.spot)
            }
            Kind::Op if matches!(first.text, "[" | "{") => {
                self.skip_brackets()?;
                self.opaque(first.spot)
            }
            _ => return Err(self.unexpected()),
        };
        let mut path_end = first.end();
        while self.token.kind == Kind::Op && matches!(self.token.text, "(" | "[" | ".") {
            if self.token.text == "." {
                self.bump();
                if self.token.kind != Kind::Name {
                    return Err(self.unexpected());
                }
                if path_end + 1 == self.token.spot.offset {
                    path_end = self.token.end();
                }
                self.bump();
            } else {
                self.skip_brackets()?;
            }
            let name = self.lexer.text.get(first.spot.offset..path_end).unwrap_or_default();
            value = Err(UnknownReason { spot: first.spot, reason: skipped(text::IS_NOT_EVALUATED), name });
        }
        Ok(value)
    }

    /// Parses adjacent string literals as one string.
    fn strings(&mut self) -> ParsedExpression<'a> {
        let spot = self.token.spot;
        let mut value = self.one_string()?;
        while self.token.kind == Kind::Str {
            let next = self.one_string()?;
            value = value.and_then(|a| next.and_then(|b| self.placed(spot, eval::binary("+", &a, &b))));
        }
        Ok(value)
    }

    fn one_string(&mut self) -> ParsedExpression<'a> {
        let token = self.bump();
        match literal::string(token.text) {
            Err(reason) if reason.severity == Severity::Error => {
                Err(Fault { spot: token.spot, what: reason.what, text: "" })
            }
            computed => Ok(self.placed(token.spot, computed)),
        }
    }

    fn name(&mut self) -> ParsedExpression<'a> {
        let token = self.token;
        let (spot, name) = (token.spot, token.text);
        match name {
            "True" | "False" => {
                self.bump();
                return Ok(Ok(Value::Bool(name == "True")));
            }
            "None" => {
                self.bump();
                return Ok(Ok(Value::None));
            }
            "lambda" | "await" | "yield" => {
                return Err(Fault { spot, what: text::NOT_READ, text: name });
            }
            _ if is_keyword(name) => return Err(self.unexpected()),
            _ => {}
        }
        self.bump();
        let calls = self.token.is_op("(") && BUILTINS.contains(&name) && !self.literal_only;
        if calls && matches!(self.settings.lookup(name), Lookup::Unknown) {
            return self.call(token);
        }
        Ok(self.variable(token))
    }

    /// Returns the value of a name at this point.
    pub fn variable(&mut self, token: Token<'a>) -> Eval<'a> {
        let (spot, name) = (token.spot, token.text);
        let why = |reason| Err(UnknownReason { spot, reason, name });
        if self.literal_only {
            return why(NOT_LITERAL);
        }
        if let Some(site) = self.sites.get_mut(name) {
            site.is_read_later = true;
        }
        match self.settings.lookup(name) {
            Lookup::Known(value) => Ok(value),
            Lookup::NotEvaluated => why(skipped(text::WAS_NOT_EVALUATED)),
            Lookup::DependsOnDevice => why(skipped(text::DEPENDS_ON_GPU)),
            Lookup::DependsOnData => why(stops(text::NO_VALUE_IN_CONFIGS)),
            Lookup::Unknown if matches!(name, "true" | "false" | "none" | "null") => why(stops(text::PYTHON_CAPITALS)),
            Lookup::Unknown => why(skipped(text::NOT_A_NAME)),
        }
    }

    /// Calls one of the built-in functions. The current token is the opening parenthesis.
    fn call(&mut self, function: Token<'a>) -> ParsedExpression<'a> {
        self.bump();
        let mut args: Vec<Value> = Vec::new();
        let mut unknown = None;
        let not_followed =
            UnknownReason { spot: function.spot, reason: skipped(text::IS_NOT_EVALUATED), name: function.text };
        while !self.token.is_op(")") {
            let readable = self.token.kind != Kind::Op || matches!(self.token.text, "(" | "[" | "{" | "-" | "+" | "~");
            if args.len() >= MAX_ARGUMENTS || !readable {
                self.skip_to_close()?;
                return Ok(Err(not_followed));
            }
            match self.expression()? {
                Ok(value) => args.push(value),
                Err(why) => unknown = unknown.or(Some(why)),
            }
            if self.token.is_op(",") {
                self.bump();
            } else if !self.token.is_op(")") {
                // A keyword argument, a generator, or a mistake that shows at the closing bracket.
                self.skip_to_close()?;
                return Ok(Err(not_followed));
            }
        }
        self.bump();
        Ok(match unknown {
            Some(why) => Err(why),
            None => self.placed(function.spot, eval::call(function.text, &args)),
        })
    }

    /// Parses `(x)`, or a tuple or generator, which are not evaluated.
    fn parenthesis(&mut self) -> ParsedExpression<'a> {
        let open = self.bump();
        if self.token.is_op(")") {
            self.bump();
            return Ok(self.opaque(open.spot));
        }
        let value = self.expression()?;
        if self.token.is_op(")") {
            self.bump();
            return Ok(value);
        }
        if self.token.is_op(",") {
            self.skip_to_close()?;
            return Ok(self.opaque(open.spot));
        }
        if self.token.is_name("for") {
            self.skip_to_close()?;
            let reason = skipped(text::NO_GENERATOR);
            return Ok(Err(UnknownReason { spot: open.spot, reason, name: "" }));
        }
        Err(self.unexpected())
    }

    /// Returns the source text from `start` to the current token as an opaque value.
    pub fn opaque(&self, start: Spot) -> Eval<'a> {
        let text = self.lexer.text.get(start.offset..self.last_end).unwrap_or_default();
        if text.len() > MAX_VALUE_BYTES {
            let reason = skipped(text::COLLECTION_TOO_LONG);
            return Err(UnknownReason { spot: start, reason, name: "" });
        }
        Ok(Value::Opaque(text.into()))
    }

    /// Skips the current bracket and everything up to its end.
    fn skip_brackets(&mut self) -> Result<(), Fault<'a>> {
        self.bump();
        self.skip_to_close()
    }

    /// Skips everything up to the end of the open bracket.
    fn skip_to_close(&mut self) -> Result<(), Fault<'a>> {
        let mut open = 1_u32;
        while open > 0 {
            if self.token.ends_line() || matches!(self.token.kind, Kind::Bad(_)) {
                return Err(self.unexpected());
            }
            let token = self.bump();
            if token.kind == Kind::Op {
                match token.text {
                    "(" | "[" | "{" => open += 1,
                    ")" | "]" | "}" => open -= 1,
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn truth(value: &Value, spot: Spot) -> Result<bool, UnknownReason<'static>> {
    let reason = skipped(text::NOT_LOOKED_INTO);
    value.truthy().ok_or(UnknownReason { spot, reason, name: "" })
}

/// Returns whether a token makes its statement one that [`Reader::after_statement`] must examine.
fn is_examined(token: &Token<'_>) -> bool {
    token.kind == Kind::Name && EXAMINED.contains(&token.text)
}
