package report

import (
	"cmp"
	"encoding/xml"
	"fmt"
	"strings"
)

// Sizes of a chart, in pixels.
const (
	chartWidth = 860
	leftWidth  = 250 // width of the names
	rightWidth = 110 // width of the numbers
	barHeight  = 16
	groupGap   = 14
	topHeight  = 56
)

// colors are the colors of the peers; any other peer is gray.
var colors = map[string]string{Ours: "#2b6cb0", Flux: "#c05621", ArgoCD: "#2c7a7b", Floor: "#718096"}

// Chart returns an SVG bar chart of one metric. Each scenario with the metric is a group of bars
// with its own scale, because scenarios differ by orders of magnitude.
func Chart(title string, metric Metric, medians []Result) string {
	var body strings.Builder
	y := topHeight
	for _, group := range grouped(medians) {
		largest := 0.0
		for _, m := range group {
			if v, ok := metric.Value(m); ok {
				largest = max(largest, v)
			}
		}
		if largest == 0 {
			continue
		}
		for i, m := range group {
			v, ok := metric.Value(m)
			if !ok {
				continue
			}
			if i == 0 {
				text(&body, 10, y+12, "bold", fmt.Sprintf("%s × %d", m.Scenario, m.Installs))
			}
			bar(&body, y, m.Peer, v/largest, metric.Format(v))
			y += barHeight + 4
		}
		y += groupGap
	}
	var b strings.Builder
	fmt.Fprintf(&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="sans-serif" font-size="12">`+"\n", chartWidth, y, chartWidth, y)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", chartWidth, y)
	text(&b, 10, 22, "bold", title)
	text(&b, 10, 40, "normal", "Lower is better. Each scenario has its own scale.")
	b.WriteString(body.String())
	b.WriteString("</svg>\n")
	return b.String()
}

func bar(b *strings.Builder, y int, peer string, share float64, label string) {
	color := cmp.Or(colors[peer], "#a0aec0")
	width := max(share*float64(chartWidth-leftWidth-rightWidth), 1)
	text(b, 90, y+12, "normal", peer)
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", leftWidth, y, width, barHeight,
		color)
	text(b, leftWidth+int(width)+6, y+12, "normal", label)
}

func text(b *strings.Builder, x, y int, weight, words string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-weight="%s" fill="#1a202c">`, x, y, weight)
	_ = xml.EscapeText(b, []byte(words)) // a strings.Builder never returns an error
	b.WriteString("</text>\n")
}
