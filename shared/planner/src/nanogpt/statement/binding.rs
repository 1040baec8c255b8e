//! The names that a statement without evaluation may set.

use super::super::lexer::{Kind, Lexer, Token, is_keyword};
use super::AUGMENTED;

/// Returns the names that a statement binds outside its functions: targets of assignments, `:=`, `for`, `as`, `case`,
/// `del` and `import`, and the names of functions and classes. Without `assignments`, targets of `=` are omitted.
///
/// A name may be listed that is not bound, but none is missing: an omitted key would keep its value.
pub(super) fn bound_names(text: &str, assignments: bool) -> Vec<Token<'_>> {
    let mut lexer = Lexer::new(text);
    let mut names = Vec::new();
    // The names of the current simple statement, of which an `=` makes targets.
    let mut targets: Vec<Token<'_>> = Vec::new();
    let (mut depth, mut n_tokens) = (0_u32, 0_u32);
    // The depth of the outermost call or subscript. Its names are no targets.
    let mut within: Option<u32> = None;
    // The keyword whose names are bound, and its depth.
    let mut clause: Option<(&str, u32)> = None;
    let mut before: Option<Token<'_>> = None;
    loop {
        let token = lexer.next();
        let is_op = token.kind == Kind::Op;
        let follows_name = before.is_some_and(|before| before.kind == Kind::Name && !is_keyword(before.text));
        match (token.kind, token.text) {
            (Kind::End, _) => return names,
            (Kind::Newline, _) => {}
            (Kind::Name, "for") if depth == 0 => clause = Some(("for", depth)),
            (Kind::Name, "as" | "del" | "import" | "def" | "class") => clause = Some((token.text, depth)),
            (Kind::Name, "case") if n_tokens == 0 => clause = Some(("case", depth)),
            (Kind::Name, "in") if matches!(clause, Some(("for", _))) => clause = None,
            (Kind::Name, name) if !is_keyword(name) && !before.is_some_and(|before| before.is_op(".")) => {
                match clause {
                    Some((word, _)) => {
                        names.push(token);
                        clause = clause.filter(|_| !matches!(word, "def" | "class"));
                    }
                    None if within.is_none() => targets.push(token),
                    None => {}
                }
            }
            (Kind::Op, ":=") if follows_name => names.extend(before),
            (Kind::Op, "(" | "[" | "{") => {
                let is_call = follows_name
                    || before.is_some_and(|before| before.kind == Kind::Str || matches!(before.text, ")" | "]" | "}"));
                within = within.or(Some(depth).filter(|_| is_call));
                depth += 1;
            }
            (Kind::Op, ")" | "]" | "}") => {
                depth = depth.saturating_sub(1);
                within = within.filter(|outer| *outer != depth);
                clause = clause.filter(|(_, outer)| *outer <= depth);
            }
            (Kind::Op, op) if depth == 0 && (op == "=" || AUGMENTED.contains(&op)) => {
                names.extend(targets.drain(..).filter(|_| assignments));
                clause = None;
            }
            (Kind::Op, ",") => clause = clause.filter(|(word, outer)| *word != "as" || *outer < depth),
            _ => {}
        }
        // The name before an annotation is a target, unlike the condition before a block.
        let is_annotation = n_tokens == 1 && follows_name;
        if token.kind == Kind::Newline || depth == 0 && is_op && matches!(token.text, ":" | ";") {
            if !(is_annotation && token.text == ":") {
                targets.clear();
            }
            (clause, within, before, depth, n_tokens) = (None, None, None, 0, 0);
            continue;
        }
        n_tokens += 1;
        before = Some(token);
    }
}

/// Returns the first token of a text that cannot be part of the target of an assignment. Brackets are not examined.
pub(super) fn not_a_target(text: &str) -> Option<Token<'_>> {
    let (mut lexer, mut depth) = (Lexer::new(text), 0_u32);
    loop {
        let token = lexer.next();
        match (token.kind, token.text) {
            (Kind::End, _) => return None,
            (Kind::Op, "(" | "[" | "{") => depth += 1,
            (Kind::Op, ")" | "]" | "}") => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            (Kind::Name, name) if !is_keyword(name) => {}
            (Kind::Op, "." | "," | "*" | "=" | ":") => {}
            _ => return Some(token),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_binding_of_python_is_found() {
        for text in [
            "x = 1",
            "a = x = 1",
            "x += 1",
            "x: int = 1",
            "a, x = 1, 2",
            "(a, x) = 1, 2",
            "[a, *x] = 1, 2",
            "if a: x = 1",
            "if a:\n    b, x = 1, 2",
            "if a:\n    x: int = 1",
            "else:\n    x = 1",
            "for x in [1]: pass",
            "for a, (b, x) in c: pass",
            "async for x in a: pass",
            "with a as b, c as x: pass",
            "with a as (b, x): pass",
            "try: pass\nexcept E as x: pass",
            "print(x := 1)",
            "[x := 1]",
            "[a for a in b if (x := a)]",
            "if (x := 1): pass",
            "while x := a(): pass",
            "assert (x := 1)",
            "del a, x",
            "import x",
            "import a as x",
            "def x(): pass",
            "class x: pass",
            "match a:\n    case [x, 3]: pass",
            "if a: pass; x = 1",
        ] {
            assert!(bound_names(text, true).iter().any(|name| name.text == "x"), "{text}");
        }
    }

    #[test]
    fn read_names_are_not_bound() {
        for text in [
            "print(x)",
            "print(a, x=1)",
            "x == 1",
            "a.x = 1",
            "a[x] = 1",
            "a(x)[x] = 1",
            "if x > 8: a = 1",
            "if x: a = 1",
            "[x for x in a]",
            "a = x",
            "'x = 1'",
            "a = 1  # x = 1",
            "for a in x: print(x)",
            "with x(x) as a: pass",
            "assert x, 'x'",
        ] {
            assert!(!bound_names(text, true).iter().any(|name| name.text == "x"), "{text}");
        }
    }

    #[test]
    fn targets_of_assignments_are_names_items_and_attributes() {
        for (text, expected) in [("a, *b", None), ("(a.b, c[1 + 2])", None), ("a-b", Some("-")), ("not a", Some("not"))]
        {
            assert_eq!(not_a_target(text).map(|token| token.text), expected, "{text}");
        }
        assert_eq!(not_a_target("a, 3").map(|token| token.text), Some("3"));
    }
}
