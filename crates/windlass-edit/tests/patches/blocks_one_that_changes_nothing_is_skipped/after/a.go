func a() {
	one()
	TWO()
}

func b() {
	three()
	four()
}
