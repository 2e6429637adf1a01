package problem

import (
	"slices"
	"strings"
)

// Nearest returns the known name that word was most likely meant to be, or an empty string if no
// known name is similar.
func Nearest(word string, known []string) string {
	best, bestDistance := "", len(word)
	for _, name := range slices.Sorted(slices.Values(known)) {
		limit := max(1, (max(len(word), len(name))+1)/3)
		d := editDistance(strings.ToLower(word), strings.ToLower(name), limit)
		if d <= limit && (best == "" || d < bestDistance) {
			best, bestDistance = name, d
		}
	}
	return best
}

// editDistance counts insertions, deletions, replacements and swaps of adjacent bytes. It returns
// limit+1 or more if the distance exceeds limit.
func editDistance(a, b string, limit int) int {
	if max(len(a)-len(b), len(b)-len(a)) > limit || len(a) > 256 || len(b) > 256 {
		return limit + 1
	}
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur, prev, prev2 := rows[i%3], rows[(i+2)%3], rows[(i+1)%3]
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
