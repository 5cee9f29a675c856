use super::*;

fn picker() -> ListPicker<usize> {
    let items = ["alpha", "beta", "gamma", "delta"]
        .into_iter()
        .enumerate()
        .map(|(value, name)| PickerItem {
            value,
            columns: vec![name.to_owned(), format!("number {value}")],
            preview: vec![StyledLine::of(format!("preview of {name}"), Tone::Text)],
        })
        .collect();
    ListPicker::new("Choose", items)
}

fn press(picker: &mut ListPicker<usize>, code: KeyCode) -> PickerOutcome<usize> {
    picker.key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn plain(picker: &mut ListPicker<usize>, width: usize, rows: usize) -> Vec<String> {
    let lines = picker.view(width, rows);
    lines
        .iter()
        .map(|line| line.plain().trim_end().to_owned())
        .collect()
}

#[test]
fn the_list_shows_columns_a_preview_and_a_hint() {
    let mut picker = picker();
    press(&mut picker, KeyCode::Down);
    assert_eq!(
        plain(&mut picker, 60, 9),
        [
            " Choose",
            "   alpha  number 0",
            " › beta   number 1",
            "   gamma  number 2",
            "   delta  number 3",
            "",
            "preview of beta",
            "   2 of 4 · enter chooses · type to filter · esc closes",
        ]
    );
}

#[test]
fn keys_filter_select_choose_and_cancel() {
    let mut picker = picker();
    assert_eq!(press(&mut picker, KeyCode::Up), PickerOutcome::Handled);
    assert_eq!(press(&mut picker, KeyCode::Enter), PickerOutcome::Chosen(3));
    for c in "gmm".chars() {
        press(&mut picker, KeyCode::Char(c));
    }
    assert_eq!((picker.filter(), picker.selected()), ("gmm", Some(&2)));
    press(&mut picker, KeyCode::Char('x'));
    assert_eq!(press(&mut picker, KeyCode::Enter), PickerOutcome::Handled);
    press(&mut picker, KeyCode::Backspace);
    assert_eq!(press(&mut picker, KeyCode::Enter), PickerOutcome::Chosen(2));
    assert_eq!(press(&mut picker, KeyCode::Esc), PickerOutcome::Cancelled);
    picker.paste("\u{1b}[2J\nmore".to_owned());
    assert_eq!(picker.filter(), "gmm[2J");
}

#[test]
fn pages_stop_at_the_ends() {
    let mut picker = picker();
    plain(&mut picker, 40, 3);
    press(&mut picker, KeyCode::PageDown);
    assert_eq!(picker.selected(), Some(&2));
    press(&mut picker, KeyCode::PageDown);
    assert_eq!(picker.selected(), Some(&3));
    press(&mut picker, KeyCode::PageUp);
    press(&mut picker, KeyCode::PageUp);
    assert_eq!(picker.selected(), Some(&0));
    picker.select_where(|value| *value == 2);
    assert_eq!(picker.selected(), Some(&2));
}

#[test]
fn every_size_of_the_view_holds() {
    let mut picker = picker();
    for width in 0..70 {
        for rows in 0..14 {
            let lines = picker.view(width, rows);
            assert!(lines.len() <= rows);
            assert!(lines.iter().all(|line| line.width() <= width));
        }
    }
    let mut empty: ListPicker<usize> = ListPicker::new("Empty", Vec::new());
    assert_eq!(
        plain(&mut empty, 40, 5)[1],
        "   no match · enter chooses · type to f…"
    );
}
