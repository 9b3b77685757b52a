MyType = "Machine"
Name = "a"
I = 7
M = my.i
TT = target.i
N = MY.I + 1
O = NoSuch
P = I

