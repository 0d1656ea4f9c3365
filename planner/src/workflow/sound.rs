//! What Go refuses when a text is parsed and the engine only where it is executed, or not at all: a function that there is not, a
//! variable that is not declared, a value in a pipeline that takes none, a loop's `break` outside of one, and a block that is not
//! ended or ended twice. The engine leaves away what is behind such an end.

use gotmpl::parse::{BranchNode, Expr, ListNode, Node, Parser, PipeNode, Pos};

/// What the engine has of its own.
const BUILT_IN: [&str; 19] = [
    "and", "call", "eq", "ge", "gt", "html", "index", "js", "le", "len", "lt", "ne", "not", "or", "print", "printf",
    "println", "slice", "urlquery",
];

/// Something behind the text, which a superfluous end cuts off and an open block takes in. It begins with a line of its own, for the
/// text may end in a brace.
const BEHIND: &str = "\n{{\"\"}}";

pub(super) fn check(text: &str, is_served: &dyn Fn(&str) -> bool) -> Result<(), String> {
    let whole = format!("{text}{BEHIND}");
    let parsed = Parser::new(&whole, "{{", "}}").and_then(Parser::parse);
    let (tree, defined) = parsed.map_err(|error| error.to_string())?;
    match tree.nodes.last() {
        Some(Node::Action(last)) if last.pos.offset >= text.len() => {}
        _ => return Err("a block is not ended, or an {{end}} or {{else}} is there without one".to_owned()),
    }
    let check = |list: &ListNode| Check { is_served, variables: vec!["$".to_owned()], loops: 0 }.list(list);
    check(&tree)?;
    defined.iter().try_for_each(|define| check(&define.body))
}

struct Check<'a> {
    is_served: &'a dyn Fn(&str) -> bool,
    variables: Vec<String>,
    loops: usize,
}

fn at(pos: Pos, why: &str) -> String {
    format!("line {}: {why}", pos.line)
}

impl Check<'_> {
    fn list(&mut self, list: &ListNode) -> Result<(), String> {
        list.nodes.iter().try_for_each(|node| self.node(node))
    }

    fn node(&mut self, node: &Node) -> Result<(), String> {
        match node {
            Node::Text(_) | Node::Define(_) => Ok(()),
            Node::List(list) => self.list(list),
            Node::Action(action) => self.pipe(&action.pipe),
            Node::If(branch) | Node::With(branch) => self.branch(branch, 0),
            Node::Range(branch) => self.branch(branch, 1),
            Node::Template(template) => template.pipe.as_ref().map_or(Ok(()), |pipe| {
                let before = self.variables.len();
                let checked = self.pipe(pipe);
                self.variables.truncate(before);
                checked
            }),
            Node::Break(pos) | Node::Continue(pos) if self.loops == 0 => {
                Err(at(*pos, "break and continue are for a range"))
            }
            Node::Break(_) | Node::Continue(_) => Ok(()),
        }
    }

    fn branch(&mut self, branch: &BranchNode, loops: usize) -> Result<(), String> {
        let before = self.variables.len();
        self.pipe(&branch.pipe)?;
        self.loops += loops;
        self.list(&branch.body)?;
        self.loops -= loops;
        branch.else_body.as_ref().map_or(Ok(()), |otherwise| self.list(otherwise))?;
        self.variables.truncate(before);
        Ok(())
    }

    fn pipe(&mut self, pipe: &PipeNode) -> Result<(), String> {
        for name in &pipe.decl {
            match pipe.is_assign {
                true => self.variable(pipe.pos, name).map_err(|why| format!("{why} to assign to"))?,
                false => self.variables.push(name.to_string()),
            }
        }
        for (stage, command) in pipe.commands.iter().enumerate() {
            let takes_none = matches!(
                command.args[0],
                Expr::Bool(..) | Expr::Dot(_) | Expr::Nil(_) | Expr::Number(..) | Expr::String(..)
            );
            if stage > 0 && takes_none {
                return Err(at(command.pos, "a value in a pipeline takes none of what is before it"));
            }
            command.args.iter().try_for_each(|expression| self.expression(expression))?;
        }
        Ok(())
    }

    fn expression(&mut self, expression: &Expr) -> Result<(), String> {
        match expression {
            Expr::Identifier(pos, name) if !BUILT_IN.contains(&name.as_str()) && !(self.is_served)(name) => {
                Err(at(*pos, &format!("there is no function '{name}'")))
            }
            Expr::Variable(pos, name, _) => self.variable(*pos, name),
            Expr::Pipe(_, pipe) => self.pipe(pipe),
            Expr::Chain(_, inner, _) => self.expression(inner),
            _ => Ok(()),
        }
    }

    fn variable(&self, pos: Pos, name: &str) -> Result<(), String> {
        let is_known = self.variables.iter().any(|known| known == name);
        if is_known { Ok(()) } else { Err(at(pos, &format!("there is no variable '{name}'"))) }
    }
}
