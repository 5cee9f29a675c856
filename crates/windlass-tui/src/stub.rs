use windlass_text::ColorDepth;
use crate::terminal::RowReflow;
pub(crate) struct Capabilities { pub(crate) colors: ColorDepth, pub(crate) reflow: RowReflow }
impl Capabilities { pub(crate) fn of(_: &[(String, String)]) -> Self { Self { colors: ColorDepth::Ansi16, reflow: RowReflow::AllRows } } }
pub(crate) struct Notification { pub(crate) title: String, pub(crate) body: String }
pub(crate) struct TerminalWriter;
impl TerminalWriter {
 pub(crate) fn new(_: &Capabilities) -> Self { Self }
 pub(crate) fn title(&self, _: &str) -> Vec<u8> { Vec::new() }
 pub(crate) fn copy(&self, _: &str) -> Vec<u8> { Vec::new() }
 pub(crate) fn notification(&self, _: &Notification) -> Vec<u8> { vec![7] }
}
