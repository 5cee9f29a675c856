//! Tracks the scopes of a Python module for errors that depend on them: `return` outside a function, a name that is used
//! before it is declared global, and so on. Most rules are those of the parser library, which asks this visitor for the
//! scope of a node.

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

/// The errors that the compiler would report in a module that parses, each with its offset.
pub(super) fn semantic_flaws(source: &str, module: &ModModule, stub: bool) -> Vec<(usize, String)> {
    let future = module.body.iter().any(|stmt| {
        let Stmt::ImportFrom(import) = stmt else {
            return false;
        };
        let module = import.module.as_ref().map(|name| name.as_str());
        let mut names = import.names.iter().map(|alias| alias.name.as_str());
        module == Some("__future__") && names.any(|name| name == "annotations")
    });
    let mut walk = ScopeWalker {
        source,
        future: future || stub,
        checker: SemanticSyntaxChecker::new(),
        scopes: vec![PythonScope {
            names: ScopeNames::of(&module.body),
            ..PythonScope::new(ScopeKind::Module)
        }],
        in_loop: false,
        star: ExceptStarRules::default(),
        errors: RefCell::default(),
    };
    walk.visit_body(&module.body);
    walk.errors.into_inner()
}

struct ScopeWalker<'a> {
    source: &'a str,
    future: bool,
    checker: SemanticSyntaxChecker,
    scopes: Vec<PythonScope>,
    in_loop: bool,
    star: ExceptStarRules,
    errors: RefCell<Vec<(usize, String)>>,
}

/// The statements that may not leave the enclosing `except*` block.
#[derive(Clone, Copy, Default)]
struct ExceptStarRules {
    returns: bool,
    jumps: bool,
}

struct PythonScope {
    kind: ScopeKind,
    parameters: HashSet<String>,
    names: ScopeNames,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ScopeKind {
    Module,
    Class,
    Function { is_async: bool },
    Lambda,
    Comprehension { is_async: bool, generator: bool },
}

impl PythonScope {
    fn new(kind: ScopeKind) -> Self {
        Self {
            kind,
            parameters: HashSet::new(),
            names: ScopeNames::default(),
        }
    }
}

impl ScopeWalker<'_> {
    fn with_checker(&mut self, judge: impl FnOnce(&mut SemanticSyntaxChecker, &Self)) {
        let mut checker = std::mem::take(&mut self.checker);
        judge(&mut checker, self);
        self.checker = checker;
    }

    fn within(&mut self, scope: PythonScope, visit: impl FnOnce(&mut Self)) {
        let in_loop = std::mem::replace(&mut self.in_loop, false);
        let star = std::mem::take(&mut self.star);
        self.scopes.push(scope);
        visit(self);
        self.scopes.pop();
        (self.in_loop, self.star) = (in_loop, star);
    }

    fn current(&self) -> ScopeKind {
        self.scopes
            .last()
            .map_or(ScopeKind::Module, |scope| scope.kind)
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

    /// Rules for statements that the parser library lacks.
    fn check_stmt(&self, stmt: &Stmt) {
        match stmt {
            Stmt::Expr(part) if part.value.is_starred_expr() => {
                self.refuse(stmt, "a starred expression is not allowed alone here");
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
                self.refuse(stmt, "`return` is not allowed in an `except*` block")
            }
            Stmt::Break(_) | Stmt::Continue(_) if self.star.jumps => {
                let why = "`break` and `continue` cannot leave an `except*` block";
                self.refuse(stmt, why);
            }
            _ => {}
        }
    }

    /// Rules for expressions that the parser library lacks.
    fn check_expr(&self, expr: &Expr) {
        match expr {
            Expr::Tuple(part) => part
                .elts
                .iter()
                .for_each(|part| self.check_bare_yield(part)),
            Expr::Compare(part) => self.check_bare_yield(&part.left),
            Expr::BinOp(part) => self.check_bare_yield(&part.left),
            Expr::BoolOp(part) => part
                .values
                .iter()
                .for_each(|part| self.check_bare_yield(part)),
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

    /// `yield` inside another expression must be in parentheses.
    fn check_bare_yield(&self, expr: &Expr) {
        if !matches!(expr, Expr::Yield(_) | Expr::YieldFrom(_)) {
            return;
        }
        let (start, end) = (expr.start().to_usize(), expr.end().to_usize());
        let before = self.source.get(..start).unwrap_or_default();
        let after = self.source.get(end..).unwrap_or_default();
        if !before.trim_end().ends_with('(') || !after.trim_start().starts_with([')', '#', '\\']) {
            self.refuse(expr, "`yield` needs parentheses around it here");
        }
    }

    fn function(&mut self, function: &ast::StmtFunctionDef) {
        for decorator in &function.decorator_list {
            self.visit_decorator(decorator);
        }
        // Type parameters have their own scope, but no rule depends on it.
        if let Some(parameters) = &function.type_params {
            self.visit_type_params(parameters);
        }
        self.visit_parameters(&function.parameters);
        if let Some(returns) = &function.returns {
            self.visit_annotation(returns);
        }
        let scope = PythonScope {
            kind: ScopeKind::Function {
                is_async: function.is_async,
            },
            parameters: parameter_names(&function.parameters),
            names: ScopeNames::of(&function.body),
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
        let scope = PythonScope {
            names: ScopeNames::of(&class.body),
            ..PythonScope::new(ScopeKind::Class)
        };
        self.within(scope, |walk| walk.visit_body(&class.body));
    }

    /// Visits a comprehension. Its first iterable is evaluated in the enclosing scope.
    fn comprehension(&mut self, generators: &[Comprehension], results: &[&Expr], generator: bool) {
        let Some((first, rest)) = generators.split_first() else {
            return;
        };
        self.visit_expr(&first.iter);
        let is_async = generators.iter().any(|part| part.is_async);
        let scope = PythonScope::new(ScopeKind::Comprehension {
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

impl Visitor<'_> for ScopeWalker<'_> {
    fn visit_stmt(&mut self, stmt: &Stmt) {
        self.with_checker(|checker, walk| checker.visit_stmt(stmt, walk));
        self.check_stmt(stmt);
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
                let star = std::mem::replace(&mut self.star, ExceptStarRules { returns, jumps });
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
        self.with_checker(|checker, walk| checker.visit_expr(expr, walk));
        self.check_expr(expr);
        match expr {
            Expr::Lambda(lambda) => {
                let mut scope = PythonScope::new(ScopeKind::Lambda);
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
                "a starred expression is not allowed in an interpolation",
            );
        }
        visitor::walk_interpolated_string_element(self, element);
    }

    fn visit_pattern(&mut self, pattern: &Pattern) {
        match pattern {
            Pattern::MatchOr(part) => {
                let mut before_last = part.patterns.iter().rev().skip(1);
                if before_last.any(matches_everything) {
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

fn matches_everything(pattern: &Pattern) -> bool {
    match pattern {
        Pattern::MatchAs(part) => part.pattern.as_deref().is_none_or(matches_everything),
        Pattern::MatchOr(part) => part.patterns.iter().any(matches_everything),
        _ => false,
    }
}

impl SemanticSyntaxContext for ScopeWalker<'_> {
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
        let mut functions = outer
            .filter(|scope| matches!(scope.kind, ScopeKind::Function { .. } | ScopeKind::Lambda));
        functions.any(|scope| scope.parameters.contains(name) || scope.names.bound.contains(name))
            || name == "__class__"
    }

    fn in_async_context(&self) -> bool {
        let mut kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        kinds.find_map(|kind| match kind {
            ScopeKind::Function { is_async } => Some(is_async),
            ScopeKind::Lambda | ScopeKind::Class => Some(false),
            ScopeKind::Module | ScopeKind::Comprehension { .. } => None,
        }) == Some(true)
    }

    fn in_await_allowed_context(&self) -> bool {
        let mut kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        kinds.find_map(|kind| match kind {
            ScopeKind::Function { .. } | ScopeKind::Lambda => Some(true),
            ScopeKind::Class | ScopeKind::Module => Some(false),
            ScopeKind::Comprehension { .. } => None,
        }) == Some(true)
    }

    fn in_yield_allowed_context(&self) -> bool {
        matches!(
            self.current(),
            ScopeKind::Function { .. } | ScopeKind::Lambda
        )
    }

    fn in_sync_comprehension(&self) -> bool {
        let kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        let mut inner = kinds.take_while(|kind| matches!(kind, ScopeKind::Comprehension { .. }));
        inner.any(|kind| matches!(kind, ScopeKind::Comprehension { is_async, .. } if !is_async))
    }

    fn in_class_body_comprehension(&self) -> bool {
        let mut kinds = self.scopes.iter().rev().map(|scope| scope.kind);
        kinds.find(|kind| !matches!(kind, ScopeKind::Comprehension { .. }))
            == Some(ScopeKind::Class)
    }

    fn in_module_scope(&self) -> bool {
        self.current() == ScopeKind::Module
    }

    fn in_function_scope(&self) -> bool {
        matches!(
            self.current(),
            ScopeKind::Function { .. } | ScopeKind::Lambda
        )
    }

    fn in_generator_context(&self) -> bool {
        let mut kinds = self.scopes.iter().map(|scope| scope.kind);
        kinds.any(|kind| matches!(kind, ScopeKind::Comprehension { generator, .. } if generator))
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

/// The names that one scope binds or declares global or nonlocal. Functions and classes inside it are scopes of their own
/// and are not visited.
#[derive(Default)]
struct ScopeNames {
    bound: HashSet<String>,
    globals: HashMap<String, TextRange>,
    nonlocals: HashMap<String, TextRange>,
}

impl ScopeNames {
    fn of(body: &[Stmt]) -> Self {
        let mut names = Self::default();
        names.visit_body(body);
        names
    }
}

/// The names that an import binds.
fn imported(names: &[ast::Alias]) -> impl Iterator<Item = &ast::Identifier> {
    names
        .iter()
        .map(|alias| alias.asname.as_ref().unwrap_or(&alias.name))
}

impl Visitor<'_> for ScopeNames {
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
