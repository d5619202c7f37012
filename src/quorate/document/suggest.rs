//! "did you mean …?"

/// The word of `known` that `word` was probably meant to be.
///
/// At most a third of the letters may differ (a swap of neighbours counts as one), and one in any case.
pub(crate) fn did_you_mean<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = word.to_lowercase().replace(['_', '-'], "");
    known
        .into_iter()
        .map(|candidate| {
            (strsim::osa_distance(&folded, &candidate.to_lowercase().replace(['_', '-'], "")), candidate)
        })
        .filter(|(distance, candidate)| *distance <= (candidate.len() / 3).max(1))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slips_of_the_pen_are_recognised_and_other_words_are_not() {
        let known = ["replicas", "name", "maxPerNode", "env"];
        let table = [
            ("replica", Some("replicas")),
            ("repilcas", Some("replicas")),
            ("max_per_node", Some("maxPerNode")),
            ("maxpernode", Some("maxPerNode")),
            ("nmae", Some("name")),
            ("environment", None),
            ("zzz", None),
        ];
        for (word, expected) in table {
            assert_eq!(did_you_mean(word, known), expected, "{word}");
        }
    }
}
