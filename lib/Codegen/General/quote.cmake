# Writes the text of INPUT to OUTPUT as C++ string literals, in pieces that every compiler takes.
file(READ ${INPUT} text)
string(LENGTH "${text}" length)
set(out "")
foreach(at RANGE 0 ${length} 8000)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND out "R\"LATHE(${piece})LATHE\"\n")
endforeach()
file(WRITE ${OUTPUT} "${out}")
