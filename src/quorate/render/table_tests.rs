//! Layout, choice, filters and order of lists.

use super::*;

struct Item(&'static str, u64, &'static str);

const COLUMNS: &[Column<Item>] = &[
    column("name", "NAME", Side::Left, Keep::Always, |item, _| item.0.into()),
    column("n", "N", Side::Right, Keep::Until(1), |item, _| Cell::number(item.1)),
    column("status", "STATUS", Side::Left, Keep::Until(2), |item, _| Cell::from(item.2).tint(Tint::Bad)),
    column("size", "SIZE", Side::Right, Keep::Wide, |item, _| (item.1 * 10).to_string().into()),
    column("why", "WHY", Side::Left, Keep::Shorten(6), |item, _| {
        if item.1 == 10 { "because of all that\nwas" } else { "" }.into()
    }),
];

fn items() -> Vec<Item> {
    vec![Item("é", 10, "down"), Item("longer", 3, "ready")]
}

fn drawn(layout: &Layout) -> String {
    draw(COLUMNS, &items(), layout, Timestamp::EPOCH).unwrap()
}

#[test]
fn columns_are_as_wide_as_their_widest_text_and_lines_end_without_blanks() {
    assert_eq!(
        drawn(&Layout::plain()),
        "\
NAME     N  STATUS  WHY
é       10  down    because of all that was
longer   3  ready"
    );
    let none = &[Item("a", 1, "")];
    assert_eq!(draw(COLUMNS, none, &Layout::plain(), Timestamp::EPOCH).unwrap(), "NAME  N\na     1");
    assert_eq!(drawn(&Layout { headings: false, ..Layout::plain() }).lines().count(), 2);
}

#[test]
fn wide_shows_all_columns_whatever_the_room() {
    let wide = Layout { wide: true, width: Some(10), ..Layout::plain() };
    assert_eq!(drawn(&wide).lines().next(), Some("NAME     N  STATUS  SIZE  WHY"));
}

#[test]
fn a_narrow_terminal_loses_the_least_important_and_shortens_the_rest() {
    let narrow = |width| drawn(&Layout { width: Some(width), ..Layout::plain() });
    assert_eq!(narrow(30).lines().nth(1), Some("é       10  down    because o…"));
    assert_eq!(narrow(24).lines().nth(1), Some("é       10  because of…"));
    assert_eq!(narrow(12).lines().nth(1), Some("é       becau…"));
    for width in 14..60 {
        assert!(narrow(width).lines().all(|line| line.chars().count() <= width), "{width}");
    }
}

#[test]
fn columns_are_shown_as_named_and_unknown_ones_are_refused() {
    let named = |columns: &[&str]| Layout {
        columns: columns.iter().map(|name| (*name).to_owned()).collect(),
        ..Layout::plain()
    };
    assert_eq!(drawn(&named(&["size", "NAME"])).lines().nth(1), Some(" 100  é"));
    let unknown = |name| draw(COLUMNS, &items(), &named(&[name]), Timestamp::EPOCH).unwrap_err();
    assert_eq!(unknown("stats"), "there is no column \"stats\"; did you mean \"status\"?");
    assert_eq!(unknown("zone"), "there is no column \"zone\"; there are name, n, status, size, why");
}

#[test]
fn filters_hold_all_together_and_each_by_one_of_its_values() {
    let kept = |filters: &[&str]| {
        let filters: Vec<Filter> = filters.iter().map(|text| text.parse().unwrap()).collect();
        let mut rows = items();
        filter(COLUMNS, &mut rows, &filters, Timestamp::EPOCH).unwrap();
        rows.iter().map(|item| item.0).collect::<Vec<_>>()
    };
    assert_eq!(kept(&["status=DOWN,ready"]), ["é", "longer"]);
    assert_eq!(kept(&["state=down"]), ["é"]);
    assert_eq!(kept(&["status!=down"]), ["longer"]);
    assert_eq!(kept(&["status=down,ready", "n=3"]), ["longer"]);
    assert_eq!(kept(&["name=l*g*r", "status=*"]), ["longer"]);
    assert_eq!(kept(&["name=l*x"]), Vec::<&str>::new());
    for bad in ["status", "=x", "status=", "status=a,,b"] {
        assert!(bad.parse::<Filter>().unwrap_err().contains("write COLUMN=VALUE"), "{bad}");
    }
}

#[test]
fn rows_are_sorted_as_numbers_or_words_up_or_down() {
    let sorted = |key| {
        let mut rows = items();
        sort(COLUMNS, &mut rows, key, Timestamp::EPOCH).map(|()| rows[0].0)
    };
    assert_eq!((sorted("n"), sorted("-n"), sorted("status")), (Ok("longer"), Ok("é"), Ok("é")));
    assert!(sorted("age").is_err());
}

#[test]
fn colours_do_not_change_the_layout() {
    let coloured = Layout {
        style: Style::new(crate::cli::args::Colour::Always, false),
        columns: vec!["status".into(), "n".into()],
        ..Layout::plain()
    };
    assert_eq!(drawn(&coloured), "STATUS   N\n\x1b[31mdown\x1b[0m    10\n\x1b[31mready\x1b[0m    3");
}
