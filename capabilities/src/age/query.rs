//! A partial parser of openCypher queries. It finds the columns that a query returns, whether the query would
//! write, and whether it calls functions of the database. AGE validates the rest.

use larder_kernel::{Error, Result};

const OPERATION: &str = "graph.cypher";
/// The maximum number of columns; Postgres allows 1,664 in one result.
const COLUMNS_MAX: usize = 1_000;
const WRITES: [&str; 6] = ["CREATE", "MERGE", "SET", "DELETE", "DETACH", "REMOVE"];
const AFTER_RETURN: [&str; 4] = ["ORDER", "SKIP", "LIMIT", "UNION"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A keyword or a name.
    Word,
    /// A name in backticks.
    Name,
    /// A text or a number.
    Literal,
    Symbol(char),
}

#[derive(Debug, Clone, Copy)]
struct Token<'q> {
    kind: Kind,
    text: &'q str,
    start: usize,
    /// The number of open brackets around it.
    depth: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }

    fn is_name(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::Name)
    }
}

/// A query that may be run.
#[derive(Debug)]
pub(super) struct Query {
    /// The columns of the result.
    pub(super) columns: Vec<String>,
    /// A word that the text does not contain, for the dollar quotes around it.
    pub(super) quote: String,
}

/// Parses a query.
pub(super) fn read(text: &str) -> Result<Query> {
    let tokens = Tokens { text, at: 0, depth: 0 }.all()?;
    refuse_writes(&tokens)?;
    refuse_functions_of_the_database(&tokens)?;
    let columns = columns(text, &tokens)?;
    let quote = (0..).map(|number| format!("larder{number}")).find(|word| !text.contains(word.as_str()));
    Ok(Query { columns, quote: quote.unwrap_or_default() })
}

fn invalid(message: &'static str) -> Error {
    Error::invalid(OPERATION, "query", message)
}

/// Returns true if the token is one of these keywords, and not a property, a label, a parameter or a key with
/// that name.
fn is_keyword(tokens: &[Token<'_>], at: usize, keywords: &[&str]) -> bool {
    let Some(token) = tokens.get(at) else { return false };
    let before = at.checked_sub(1).and_then(|before| tokens.get(before)).map(|before| before.kind);
    let after = tokens.get(at + 1).map(|after| after.kind);
    token.kind == Kind::Word
        && keywords.iter().any(|keyword| token.text.eq_ignore_ascii_case(keyword))
        && !matches!(before, Some(Kind::Symbol('.' | ':' | '$')))
        && after != Some(Kind::Symbol(':'))
}

fn refuse_writes(tokens: &[Token<'_>]) -> Result<()> {
    if (0..tokens.len()).any(|at| is_keyword(tokens, at, &WRITES)) {
        return Err(invalid("would write; use the store's methods to write"));
    }
    Ok(())
}

/// Rejects `schema.function(`, which would call any function that the database's user may call.
fn refuse_functions_of_the_database(tokens: &[Token<'_>]) -> Result<()> {
    let calls = tokens.windows(4).any(|four| match four {
        [schema, dot, function, bracket] => {
            schema.is_name()
                && dot.kind == Kind::Symbol('.')
                && function.is_name()
                && bracket.kind == Kind::Symbol('(')
        }
        _ => false,
    });
    if calls {
        Err(invalid("calls a function of the database; use openCypher functions only"))
    } else {
        Ok(())
    }
}

/// Returns the names of the columns, because AGE must be given their number.
fn columns(text: &str, tokens: &[Token<'_>]) -> Result<Vec<String>> {
    let outer = |at: usize, keywords: &[&str]| {
        tokens.get(at).is_some_and(|token| token.depth == 0) && is_keyword(tokens, at, keywords)
    };
    let begin = (0..tokens.len())
        .find(|at| outer(*at, &["RETURN"]))
        .ok_or_else(|| invalid("returns nothing; add a `RETURN`"))?
        + 1;
    let begin = if outer(begin, &["DISTINCT"]) { begin + 1 } else { begin };
    let ends = |at: usize| outer(at, &AFTER_RETURN) || tokens[at].kind == Kind::Symbol(';');
    let end = (begin..tokens.len()).find(|at| ends(*at)).unwrap_or(tokens.len());
    let items = tokens.get(begin..end).unwrap_or_default();
    let mut columns = Vec::new();
    for item in items.split(|token| token.depth == 0 && token.kind == Kind::Symbol(',')) {
        let column = column(text, item)?;
        if columns.contains(&column) {
            return Err(invalid("returns one column twice; name each with `AS`"));
        }
        columns.push(column);
        if columns.len() > COLUMNS_MAX {
            return Err(invalid("returns more than 1,000 columns; return fewer"));
        }
    }
    Ok(columns)
}

fn column(text: &str, item: &[Token<'_>]) -> Result<String> {
    let (Some(first), Some(last)) = (item.first(), item.last()) else {
        return Err(invalid("does not parse: an item of `RETURN` is empty; remove it"));
    };
    if item.len() == 1 && first.kind == Kind::Symbol('*') {
        return Err(invalid("returns `*`; name the columns"));
    }
    let alias = (0..item.len()).rfind(|at| item[*at].depth == 0 && is_keyword(item, *at, &["AS"]));
    match alias.map(|at| item.get(at + 1..).unwrap_or_default()) {
        Some([alias]) if alias.kind == Kind::Word => Ok(alias.text.to_owned()),
        Some([alias]) if alias.kind == Kind::Name => Ok(alias.text.trim_matches('`').replace("``", "`")),
        Some(_) => Err(invalid("does not parse: an alias after `AS` is not a name; rename it")),
        None => Ok(text.get(first.start..last.end()).unwrap_or_default().to_owned()),
    }
}

struct Tokens<'q> {
    text: &'q str,
    at: usize,
    depth: usize,
}

impl<'q> Tokens<'q> {
    fn all(mut self) -> Result<Vec<Token<'q>>> {
        let mut tokens = Vec::new();
        while let Some(token) = self.next()? {
            tokens.push(token);
        }
        if self.depth > 0 {
            Err(invalid("does not parse: a bracket is not closed; close it"))
        } else {
            Ok(tokens)
        }
    }

    fn rest(&self) -> &'q str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn next(&mut self) -> Result<Option<Token<'q>>> {
        self.skip_space()?;
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return Ok(None) };
        let of_word = |letter: char| {
            letter.is_ascii_alphanumeric() || matches!(letter, '_' | '$') || !letter.is_ascii()
        };
        let (kind, length) = match first {
            '\'' | '"' => (Kind::Literal, quoted(rest, first)?),
            '`' => (Kind::Name, quoted(rest, first)?),
            '0'..='9' => (Kind::Literal, length_while(rest, |letter| letter.is_ascii_alphanumeric())),
            letter if of_word(letter) && letter != '$' => (Kind::Word, length_while(rest, of_word)),
            symbol => (Kind::Symbol(symbol), symbol.len_utf8()),
        };
        if matches!(first, ')' | ']' | '}') {
            self.depth = self.depth.checked_sub(1).ok_or_else(|| {
                invalid("does not parse: a closing bracket has no opening bracket; remove it")
            })?;
        }
        let token =
            Token { kind, text: rest.get(..length).unwrap_or_default(), start: self.at, depth: self.depth };
        if matches!(first, '(' | '[' | '{') {
            self.depth += 1;
        }
        self.at += length;
        Ok(Some(token))
    }

    /// Skips spaces and comments.
    fn skip_space(&mut self) -> Result<()> {
        loop {
            let rest = self.rest();
            let length = if let Some(comment) = rest.strip_prefix("/*") {
                comment
                    .find("*/")
                    .ok_or_else(|| invalid("does not parse: a comment is not closed; close it"))?
                    + 4
            } else if rest.starts_with("//") {
                rest.find(['\n', '\r']).unwrap_or(rest.len())
            } else {
                length_while(rest, |letter| letter.is_ascii_whitespace() || letter == '\u{b}')
            };
            if length == 0 {
                return Ok(());
            }
            self.at += length;
        }
    }
}

fn length_while(text: &str, of_it: impl Fn(char) -> bool) -> usize {
    text.find(|letter| !of_it(letter)).unwrap_or(text.len())
}

/// Returns the length of a quoted text, including its quotes. A name escapes the quote by doubling it, and a
/// text by a backslash.
fn quoted(text: &str, quote: char) -> Result<usize> {
    let mut letters = text.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        if letter == '\\' && quote != '`' {
            letters.next();
        } else if letter == quote {
            if quote == '`' && letters.next_if(|(_, next)| *next == '`').is_some() {
                continue;
            }
            return Ok(at + 1);
        }
    }
    Err(invalid("does not parse: a quote is not closed; close it"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_their_alias_or_their_text() {
        for (query, expected) in [
            ("RETURN 1", vec!["1"]),
            (
                "MATCH (n) RETURN n.id AS id, count( n ) , {a: 1, b: [2, 3]} as `odd ``name`;",
                vec!["id", "count( n )", "odd `name"],
            ),
            ("match (n) return distinct n.order order by n.order limit 3", vec!["n.order"]),
            ("RETURN 1 AS a UNION ALL RETURN 2 AS a", vec!["a"]),
            ("WITH 'RETURN x' AS y // RETURN z\n RETURN /* , */ y", vec!["y"]),
            ("RETURN CASE WHEN true THEN {limit: 1, return: 2} ELSE $return END AS c", vec!["c"]),
            ("MATCH (n) WHERE EXISTS {MATCH (n) RETURN n.a, n.b} RETURN n", vec!["n"]),
            ("RETURN 'it\\'s, \\\\' AS text, \"a, b\" AS b", vec!["text", "b"]),
        ] {
            assert_eq!(read(query).unwrap().columns, expected, "{query}");
        }
    }

    #[test]
    fn an_unusable_service_is_refused() {
        for query in [
            "",
            "MATCH (",
            "MATCH (n)",
            "RETURN *",
            "RETURN",
            "RETURN 1,",
            "RETURN 1 AS a, 2 AS a",
            "RETURN 1 AS a $$ ) DROP",
            "RETURN 'open",
            "RETURN 1 /* open",
            "RETURN 1 AS 2",
            "MATCH (n) DELETE n RETURN 1",
            "MATCH (n) SET n.id = 1 RETURN 1",
            "create (n) return n",
            "MERGE (n) RETURN n",
            "RETURN pg_catalog.pg_sleep(1)",
            "RETURN pg_catalog /* x */ . `pg_sleep` (1)",
            "CALL pg_catalog.pg_sleep(1) YIELD x RETURN x",
        ] {
            assert_eq!(read(query).unwrap_err().field(), Some("query"), "{query}");
        }
    }

    #[test]
    fn names_that_look_like_keywords_are_not_writes() {
        for query in [
            "MATCH (n) RETURN n.set AS a, n.delete AS b",
            "MATCH (n {create: 1}) RETURN n",
            "MATCH (n:Create) WHERE n.id = $set RETURN n",
            "RETURN 'DELETE', `MERGE` // CREATE",
        ] {
            assert!(read(query).is_ok(), "{query}");
        }
    }

    #[test]
    fn the_quote_is_not_in_the_text() {
        assert_eq!(read("RETURN 1").unwrap().quote, "larder0");
        assert_eq!(read("RETURN '$larder0$ larder1'").unwrap().quote, "larder2");
    }
}
