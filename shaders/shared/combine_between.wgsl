{#- Combine what is at the places from `begin` to before `end`, from left to right, as `total`. Of no places the total is
    arbitrary. The block gives what is at the place that it gets.
    Values: its type, the functions that join two of them and pick one of two, how many are loaded at a time, so that their
    loads are under way together; and the distance from one place to the next. -#}
{% macro combine_between(type, join, pick, loads, stride="1u") %}
{% if loads == 1 %}
    var total = {{ caller("begin") }};
    for (var next = begin + {{ stride }}; next < end; next += {{ stride }}) {
        total = {{ join }}(total, {{ caller("next") }});
    }
{% else %}
    var total: {{ type }};
    var next = begin;
    for (; next + {{ loads - 1 }}u * {{ stride }} < end; next += {{ loads }}u * {{ stride }}) {
{% for i in range(loads) %}
        let part{{ i }} = {{ caller("next + %du * %s" % (i, stride)) }};
{% endfor %}
        if (next == begin) {
            total = part0;
        } else {
            total = {{ join }}(total, part0);
        }
{% for i in range(1, loads) %}
        total = {{ join }}(total, part{{ i }});
{% endfor %}
    }
    if (next < end) {
{% for i in range(loads - 1) %}
        let part{{ i }} = {{ caller("min(next + %du * %s, end - 1u)" % (i, stride)) }};
{% endfor %}
        total = {{ pick }}(next == begin, part0, {{ join }}(total, part0));
{% for i in range(1, loads - 1) %}
        total = {{ pick }}(next + {{ i }}u * {{ stride }} < end, {{ join }}(total, part{{ i }}), total);
{% endfor %}
    }
{% endif %}
{% endmacro %}
