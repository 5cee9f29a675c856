//! The scopes of a Python module, for the errors that hang on them: `return` outside a function, a name that is used
//! before it is declared global, and so on. The rules are the parser's; this only answers where a node stands.

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};

use ruff_python_ast::visitor::{self, Visitor};
use ruff_python_ast::{
    self as ast, Comprehension, ExceptHandler, Expr, ExprContext, InterpolatedStringElement,
    ModModule, Parameters, Pattern, PythonVersion, Stmt,
};
use ruff_python_parser::semantic_errors::{
    LazyImportContext, SemanticSyntaxChecker, SemanticSyntaxContext, SemanticSyntaxError,
};
use ruff_text_size::{Ranged, TextRange};

/// What the compiler would refuse in a module that parses: where, and why.
pub(super) fn semantic_flaws(source: &str, module: &ModModule, stub: bool) -> Vec<(usize, String)> {
    let future = module.body.iter().any(|stmt| {
        let Stmt::ImportFrom(import) = stmt else {
            return false;
        };
        let module = import.module.as_ref().map(|name| name.as_str());
        let mut names = import.names.iter().map(|alias| alias.name.as_str());
        module == Some("__future__") && names.any(|name| name == "annotations")
    });
    let mut walk = Walk {
        source,
        future: future || stub,
        checker: SemanticSyntaxChecker::new(),
        scopes: vec![Scope {
            names: Names::of(&module.body),
            ..Scope::new(Kind::Module)
        }],
        in_loop: false,
        star: Star::default(),
        errors: RefCell::default(),
    };
    walk.visit_body(&module.body);
    walk.errors.into_inner()
}

struct Walk<'a> {
    source: &'a str,
    future: bool,
    checker: SemanticSyntaxChecker,
    scopes: Vec<Scope>,
    in_loop: bool,
    star: Star,
    errors: RefCell<Vec<(usize, String)>>,
}

/// What may not leave the `except*` that stands around it.
#[derive(Clone, Copy, Default)]
struct Star {
    returns: bool,
    jumps: bool,
}

struct Scope {
    kind: Kind,
    parameters: HashSet<String>,
    names: Names,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Module,
    Class,
    Function { is_async: bool },
    Lambda,
    Comprehension { is_async: bool, generator: bool },
}

impl Scope {
    fn new(kind: Kind) -> Self {
        Self {
            kind,
            parameters: HashSet::new(),
            names: Names::default(),
        }
    }
}

impl Walk<'_> {
    fn judged(&mut self, judge: impl FnOnce(&mut SemanticSyntaxChecker, &Self)) {
        let mut checker = std::mem::take(&mut self.checker);
        judge(&mut checker, self);
        self.checker = checker;
    }

    fn within(&mut self, scope: Scope, visit: impl FnOnce(&mut Self)) {
        let in_loop = std::mem::replace(&mut self.in_loop, false);
        let star = std::mem::take(&mut self.star);
        self.scopes.push(scope);
        visit(self);
        self.scopes.pop();
        (self.in_loop, self.star) = (in_loop, star);
    }

    fn current(&self) -> Kind {
        self.scopes.last().map_or(Kind::Module, |scope| scope.kind)
    }

    fn looping(&mut self, body: &[Stmt], otherwise: &[Stmt]) {
        let in_loop = std::mem::replace(&mut self.in_loop, true);
        let star = self.star;
        self.star.jumps = false;
        self.visit_body(body);
        (self.in_loop, self.star) = (in_loop, star);
        self.visit_body(otherwise);
    }

    fn refuse(&self, node: &impl Ranged, why: impl Into<String>) {
        self.errors
            .borrow_mut()
            .push((node.start().to_usize(), why.into()));
    }

    /// What the parser's own rules leave out.
    fn more_on_stmt(&self, stmt: &Stmt) {
        match stmt {
            Stmt::Expr(part) if part.value.is_starred_expr() => {
                self.refuse(stmt, "a starred expression cannot stand alone here");
            }
            Stmt::Try(part) => {
                let handlers = part
                    .handlers
                    .iter()
                    .map(|ExceptHandler::ExceptHandler(inner)| inner);
                let mut bare = handlers.rev().skip(1).filter(|inner| inner.type_.is_none());
                if let Some(inner) = bare.next() {
                    self.refuse(inner, "the `except:` without a type must be the last one");
                }
            }
            Stmt::Return(_) if self.star.returns => {
                self.refuse(stmt, "`return` cannot stand in an `except*` block")
            }
            Stmt::Break(_) | Stmt::Continue(_) if self.star.jumps => {
                let why = "`break` and `continue` cannot leave an `except*` block";
                self.refuse(stmt, why);
            }
            _ => {}
        }
    }

    fn more_on_expr(&self, expr: &Expr) {
        match expr {
            Expr::Tuple(part) => part.elts.iter().for_each(|part| self.bare_yield(part)),
            Expr::Compare(part) => self.bare_yield(&part.left),
            Expr::BinOp(part) => self.bare_yield(&part.left),
            Expr::BoolOp(part) => part.values.iter().for_each(|part| self.bare_yield(part)),
            Expr::Attribute(part)
                if part.attr.as_str() == "__debug__" && !matches!(part.ctx, ExprContext::Load) =>
            {
                self.refuse(expr, "`__debug__` cannot be assigned to");
            }
            Expr::Call(part) => {
                let names = part
                    .arguments
                    .keywords
                    .iter()
                    .filter_map(|keyword| keyword.arg.as_ref());
                for name in names.filter(|name| name.as_str() == "__debug__") {
                    self.refuse(name, "`__debug__` cannot be assigned to");
                }
            }
            Expr::Name(name) => {
                let declared = self
                    .scopes
                    .last()
                    .and_then(|scope| scope.names.nonlocals.get(name.id.as_str()));
                if declared.is_some_and(|range| name.start() < range.start()) {
                    let name = &name.id;
                    let why = format!("the name `{name}` is used before it is declared nonlocal");
                    self.refuse(expr, why);
                }
            }
            _ => {}
        }
    }

    /// As a part of another expression it needs brackets of its own.
    fn bare_yield(&self, expr: &Expr) {
        if !matches!(expr, Expr::Yield(_) | Expr::YieldFrom(_)) {
            return;
        }
        let (start, end) = (expr.start().to_usize(), expr.end().to_usize());
        let before = self.source.get(..start).unwrap_or_default();
        let after = self.source.get(end..).unwrap_or_default();
        if !before.trim_end().ends_with('(') || !after.trim_start().starts_with([')', '#', '\\']) {
            self.refuse(expr, "`yield` needs brackets around it here");
        }
    }

    fn function(&mut self, function: &ast::StmtFunctionDef) {
        for decorator in &function.decorator_list {
            self.visit_decorator(decorator);
        }
        // Type parameters make a scope of their own, which no rule here looks at.
        if let Some(parameters) = &function.type_params {
            self.visit_type_params(parameters);
        }
        self.visit_parameters(&function.parameters);
        if let Some(returns) = &function.returns {
            self.visit_annotation(returns);
        }
        let scope = Scope {
            kind: Kind::Function {
                is_async: function.is_async,
            },
            parameters: parameter_names(&function.parameters),
            names: Names::of(&function.body),
        };
        self.within(scope, |walk| walk.visit_body(&function.body));
    }

    fn class(&mut self, class: &ast::StmtClassDef) {
        for decorator in &class.decorator_list {
            self.visit_decorator(decorator);
        }
        if let Some(parameters) = &class.type_params {
            self.visit_type_params(parameters);
        }
        if let Some(arguments) = &class.arguments {
            self.visit_arguments(arguments);
        }
        let scope = Scope {
            names: Names::of(&class.body),
            ..Scope::new(Kind::Class)
        };
        self.within(scope, |walk| walk.visit_body(&class.body));
    }

    /// The first iterable belongs to the scope outside.
    fn comprehension(&mut self, generators: &[Comprehension], results: &[&Expr], generator: bool) {
        let Some((first, rest)) = generators.split_first() else {
            return;
        };
        self.visit_expr(&first.iter);
        let is_async = generators.iter().any(|part| part.is_async);
        let scope = Scope::new(Kind::Comprehension {
            is_async,
            generator,
        });
        self.within(scope, |walk| {
            walk.visit_expr(&first.target);
            first.ifs.iter().for_each(|test| walk.visit_expr(test));
            rest.iter().for_each(|part| walk.visit_comprehension(part));
            results.iter().for_each(|result| walk.visit_expr(result));
        });
    }
}

impl Visitor<'_> for Walk<'_> {
    fn visit_stmt(&mut self, stmt: &Stmt) {
        self.judged(|checker, walk| checker.visit_stmt(stmt, walk));
        self.more_on_stmt(stmt);
        match stmt {
            Stmt::FunctionDef(function) => self.function(function),
            Stmt::ClassDef(class) => self.class(class),
            Stmt::For(part) => {
                self.visit_expr(&part.iter);
                self.visit_expr(&part.target);
                self.looping(&part.body, &part.orelse);
            }
            Stmt::While(part) => {
                self.visit_expr(&part.test);
                self.looping(&part.body, &part.orelse);
            }
            Stmt::Try(part) if part.is_star => {
                self.visit_body(&part.body);
                let (returns, jumps) = (true, true);
                let star = std::mem::replace(&mut self.star, Star { returns, jumps });
                for handler in &part.handlers {
                    self.visit_except_handler(handler);
                }
                self.star = star;
                self.visit_body(&part.orelse);
                self.visit_body(&part.finalbody);
            }
            _ => visitor::walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &Expr) {
        self.judged(|checker, walk| checker.visit_expr(expr, walk));
        self.more_on_expr(expr);
        match expr {
            Expr::Lambda(lambda) => {
                let mut scope = Scope::new(Kind::Lambda);
                if let Some(parameters) = &lambda.parameters {
                    self.visit_parameters(parameters);
                    scope.parameters = parameter_names(parameters);
                }
                self.within(scope, |walk| walk.visit_expr(&lambda.body));
            }
            Expr::ListComp(part) => self.comprehension(&part.generators, &[&part.elt], false),
            Expr::SetComp(part) => self.comprehension(&part.generators, &[&part.elt], false),
            Expr::Generator(part) => self.comprehension(&part.generators, &[&part.elt], true),
            Expr::DictComp(part) => {
                let key = part.key.as_deref();
                let results: Vec<&Expr> = key.into_iter().chain([&*part.value]).collect();
                self.comprehension(&part.generators, &results, false);
            }
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_interpolated_string_element(&mut self, element: &InterpolatedStringElement) {
        if let InterpolatedStringElement::Interpolation(part) = element
            && part.expression.is_starred_expr()
        {
            self.refuse(
                part,
                "a starred expression cannot stand in an interpolation",
            );
        }
        visitor::walk_interpolated_string_element(self, element);
    }

    fn visit_pattern(&mut self, pattern: &Pattern) {
        match pattern {
            Pattern::MatchOr(part) => {
                let mut before_last = part.patterns.iter().rev().skip(1);
                if before_last.any(takes_everything) {
                    self.refuse(pattern, "an alternative that matches everything makes the ones after it unreachable");
                }
            }
            Pattern::MatchValue(part)
                if part.value.is_f_string_expr() || part.value.is_t_string_expr() =>
            {
                self.refuse(
                    pattern,
                    "a pattern may only be a literal, not a formatted string",
                );
            }
            _ => {}
        }
        visitor::walk_pattern(self, pattern);
    }
}

fn takes_everything(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::MatchAs(part) => part.pattern.as_deref().is_none_or(takes_everything),
        Pattern::MatchOr(part) => part.patterns.iter().any(takes_everything),
        _ => false,
    }
}

impl SemanticSyntaxContext for Walk<'_> {
    fn future_annotations_or_stub(&self) -> bool {
        self.future
    }

    fn lazy_import_context(&self) -> Option<LazyImportContext> {
        None
    }

    fn python_version(&self) -> PythonVersion {
        PythonVersion::PY314
    }

    fn source(&self) -> &str {
        self.source
    }

    fn global(&self, name: &str) -> Option<TextRange> {
        self.scopes.last()?.names.globals.get(name).copied()
    }

    fn has_nonlocal_binding(&self, name: &str) -> bool {
        let outer = self.scopes.iter().rev().skip(1);
        let mut functions =
            outer.filter(|scope| matches!(scope.kind, Kind::Function { .. } | Kind::Lambda));
        functions.any(|scope| scope.parameters.contains(name) || scope.names.bound.contains(name))
            || name == "__class__"
    }

    fn in_async_context(&self) -> bool {
        let mut kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        kinds.find_map(|kind| match kind {
            Kind::Function { is_async } => Some(is_async),
            Kind::Lambda | Kind::Class => Some(false),
            Kind::Module | Kind::Comprehension { .. } => None,
        }) == Some(true)
    }

    fn in_await_allowed_context(&self) -> bool {
        let mut kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        kinds.find_map(|kind| match kind {
            Kind::Function { .. } | Kind::Lambda => Some(true),
            Kind::Class | Kind::Module => Some(false),
            Kind::Comprehension { .. } => None,
        }) == Some(true)
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(self.current(), Kind::Function { .. } | Kind::Lambda)
    }

    fn in_sync_comprehension(&self) -> bool {
        let kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        let mut inner = kinds.take_while(|kind| matches!(kind, Kind::Comprehension { .. }));
        inner.any(|kind| matches!(kind, Kind::Comprehension { is_async, .. } if !is_async))
    }

    fn in_class_body_comprehension(&self) -> bool {
        let mut kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        kinds.find(|kind| !matches!(kind, Kind::Comprehension { .. })) == Some(Kind::Class)
    }

    fn in_module_scope(&self) -> bool {
        self.current() == Kind::Module
    }

    fn in_function_scope(&self) -> bool {
        matches!(self.current(), Kind::Function { .. } | Kind::Lambda)
    }

    fn in_generator_context(&self) -> bool {
        let mut kinds = self.scopes.iter().map(|scope| scope.kind);
        kinds.any(|kind| matches!(kind, Kind::Comprehension { generator, .. } if generator))
    }

    fn in_notebook(&self) -> bool {
        false
    }

    fn report_semantic_error(&self, error: SemanticSyntaxError) {
        self.errors
            .borrow_mut()
            .push((error.range.start().to_usize(), error.to_string()));
    }

    fn in_loop_context(&self) -> bool {
        self.in_loop
    }

    fn is_bound_parameter(&self, name: &str) -> bool {
        self.scopes
            .last()
            .is_some_and(|scope| scope.parameters.contains(name))
    }
}

fn parameter_names(parameters: &Parameters) -> HashSet<String> {
    parameters
        .iter()
        .map(|parameter| parameter.name().to_string())
        .collect()
}

/// The names of one scope: what it binds, and what it declares global or nonlocal. It does not look into functions and classes
/// within.
#[derive(Default)]
struct Names {
    bound: HashSet<String>,
    globals: HashMap<String, TextRange>,
    nonlocals: HashMap<String, TextRange>,
}

impl Names {
    fn of(body: &[Stmt]) -> Self {
        let mut names = Self::default();
        names.visit_body(body);
        names
    }
}

/// The names under which something is imported.
fn imported(names: &[ast::Alias]) -> impl Iterator<Item = &ast::Identifier> {
    names
        .iter()
        .map(|alias| alias.asname.as_ref().unwrap_or(&alias.name))
}

impl Visitor<'_> for Names {
    fn visit_stmt(&mut self, stmt: &Stmt) {
        match stmt {
            Stmt::FunctionDef(function) => {
                self.bound.insert(function.name.to_string());
            }
            Stmt::ClassDef(class) => {
                self.bound.insert(class.name.to_string());
            }
            Stmt::Import(import) => {
                let names = imported(&import.names);
                let first = names.filter_map(|name| name.split('.').next());
                self.bound.extend(first.map(str::to_owned));
            }
            Stmt::ImportFrom(import) => {
                let names = imported(&import.names);
                self.bound.extend(names.map(ToString::to_string));
            }
            Stmt::Nonlocal(part) => {
                for name in &part.names {
                    self.bound.insert(name.to_string());
                    self.nonlocals
                        .entry(name.to_string())
                        .or_insert_with(|| part.range());
                }
            }
            Stmt::Global(part) => {
                for name in &part.names {
                    self.globals
                        .entry(name.to_string())
                        .or_insert_with(|| part.range());
                }
            }
            _ => visitor::walk_stmt(self, stmt),
        }
    }

    fn visit_expr(&mut self, expr: &Expr) {
        match expr {
            Expr::Name(name) if !matches!(name.ctx, ExprContext::Load) => {
                self.bound.insert(name.id.to_string());
            }
            Expr::Lambda(_) => {}
            _ => visitor::walk_expr(self, expr),
        }
    }

    fn visit_except_handler(&mut self, handler: &ExceptHandler) {
        let ExceptHandler::ExceptHandler(inner) = handler;
        self.bound
            .extend(inner.name.iter().map(ToString::to_string));
        visitor::walk_except_handler(self, handler);
    }

    fn visit_pattern(&mut self, pattern: &Pattern) {
        let name = match pattern {
            Pattern::MatchAs(part) => part.name.as_ref(),
            Pattern::MatchStar(part) => part.name.as_ref(),
            Pattern::MatchMapping(part) => part.rest.as_ref(),
            _ => None,
        };
        self.bound.extend(name.map(ToString::to_string));
        visitor::walk_pattern(self, pattern);
    }
}
